//! Owns a copy of a command's arguments that outlives the batch.

use resp::Args;
use resp::request::Span;

/// A command's arguments, owned, so that they outlive the batch.
#[derive(Debug, Clone)]
pub struct OwnedArgs {
    bytes: Box<[u8]>,
    spans: Box<[Span]>,
}

impl OwnedArgs {
    pub fn new(args: Args<'_>) -> OwnedArgs {
        let mut bytes = Vec::with_capacity(args.from(0).map(<[u8]>::len).sum());
        let spans = args
            .from(0)
            .map(|arg| {
                let span = Span { start: bytes.len() as u32, len: arg.len() as u32 };
                bytes.extend_from_slice(arg);
                span
            })
            .collect();
        OwnedArgs { bytes: bytes.into(), spans }
    }

    pub fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }

    /// Memory that the arguments take when they are owned.
    pub fn mem_bytes_of(args: Args<'_>) -> usize {
        args.from(0).map(<[u8]>::len).sum::<usize>() + args.len() * size_of::<Span>()
    }
}
