//! Owns progress bars and spinners on standard error. A bar is always cleared before anything else is printed, and a signal
//! ends the wait with a line that says which work the node continues. Never knows the work itself.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::Failure;

/// The pause between two checks for a signal.
const LOOK: Duration = Duration::from_millis(50);

/// The bar is cleared when it is dropped, so that an error message does not appear behind it.
pub fn bar(template: &str, length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the template is fixed");
    ProgressBar::new(length).with_finish(ProgressFinish::AndClear).with_style(style.progress_chars("=> "))
}

pub fn spinner(template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the template is fixed");
    ProgressBar::new_spinner().with_finish(ProgressFinish::AndClear).with_style(style)
}

/// A wait for work of the node. A signal ends the process with exit code 130, and the node continues.
pub struct Wait {
    bar: ProgressBar,
    is_over: Arc<AtomicBool>,
}

impl Wait {
    /// `goes_on`: a text that says which work the node continues after the wait was ended, and how to see its progress.
    pub fn new(bar: ProgressBar, goes_on: String) -> Wait {
        static SIGNALLED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
        let signalled = SIGNALLED.get_or_init(|| {
            let signalled = Arc::new(AtomicBool::new(false));
            for signal in [SIGINT, SIGTERM] {
                // If this fails, the signal ends the process by default.
                let _ = signal_hook::flag::register(signal, Arc::clone(&signalled));
            }
            signalled
        });
        let is_over = Arc::new(AtomicBool::new(false));
        let (shown, signalled, over) = (bar.clone(), Arc::clone(signalled), Arc::clone(&is_over));
        thread::spawn(move || {
            while !over.load(Relaxed) {
                if signalled.load(Relaxed) {
                    shown.finish_and_clear();
                    let failure = Failure::interrupted("stopped waiting").hint(goes_on);
                    eprint!("{failure}");
                    std::process::exit(failure.code.into());
                }
                thread::sleep(LOOK);
            }
        });
        Wait { bar, is_over }
    }
}

impl Deref for Wait {
    type Target = ProgressBar;

    fn deref(&self) -> &ProgressBar {
        &self.bar
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::{ProgressDrawTarget, TermLike};
    use std::io;
    use std::sync::Mutex;

    /// A mock of the last line of a terminal.
    #[derive(Debug, Clone, Default)]
    struct Line(Arc<Mutex<String>>);

    impl TermLike for Line {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            self.0.lock().unwrap().clear();
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_error_is_not_printed_behind_a_bar() {
        let fails = |bar: ProgressBar| -> Result<(), Failure> {
            bar.tick();
            Err(Failure::failed("no"))?;
            bar.finish_and_clear();
            Ok(())
        };
        for of in [|| bar("resizing [{bar:30}]", 10), || spinner("{spinner} deleting ads")] {
            let line = Line::default();
            let bar = of();
            bar.set_draw_target(ProgressDrawTarget::term_like(Box::new(line.clone())));
            bar.tick();
            assert!(!line.0.lock().unwrap().trim().is_empty());
            fails(bar).unwrap_err();
            assert_eq!(line.0.lock().unwrap().trim(), "");
        }
    }
}
