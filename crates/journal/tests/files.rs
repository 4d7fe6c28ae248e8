//! The format, and what damaged, missing and foreign files give. The bytes of tests/journal-1.bin and journal-2.bin must stay readable.

use flash::io::{Driver, Op, PAGE_BYTES, PageBuf, Reader};
use flash::{DATA_OFFSET, Sim};
use journal::{Config, Error, Record, Writer, recover};
use std::io;
use std::sync::Mutex;

const FILES: u16 = 4;
/// Nothing is packed.
const CONFIG: Config = Config {
    log_id: *b"0123456789abcdef",
    file_bytes: 64 << 10,
    frame_bytes: 20 << 10,
    buffer_bytes: 1 << 20,
    packed_from: usize::MAX,
};
const PACKED: Config = Config { packed_from: 8 << 10, ..CONFIG };

fn run_operations(writer: &mut Writer, driver: &mut impl Driver) -> Result<(), journal::Failed> {
    loop {
        let (mut ops, mut done): (Vec<Op>, _) = (Vec::new(), Vec::new());
        writer.ops(&mut ops);
        if ops.is_empty() && driver.in_flight() == 0 {
            return Ok(());
        }
        ops.into_iter().for_each(|op| driver.push(op));
        driver.wait();
        driver.reap(&mut done);
        done.into_iter().try_for_each(|done| writer.done(done))?;
    }
}

fn append(writer: &mut Writer, resp: &[u8]) -> u64 {
    let record = Record { db: 1, time_ms: 1_700_000_000_000, resp };
    writer.append(&record, writer.position() + 1000).unwrap()
}

/// Each record is made durable on its own.
fn written(records: &[&[u8]]) -> (Sim, Writer) {
    written_with(CONFIG, records)
}

fn written_with(config: Config, records: &[&[u8]]) -> (Sim, Writer) {
    let sim = Sim::new(1, FILES, config.file_bytes).with_cache();
    let mut writer = Writer::new(config, FILES);
    for record in records {
        append(&mut writer, record);
        writer.sync();
        run_operations(&mut writer, &mut sim.driver()).unwrap();
    }
    assert_eq!(writer.durable(), writer.position());
    (sim, writer)
}

fn read(sim: &Sim, from: u64) -> Result<Vec<Vec<u8>>, Error> {
    let mut found = Vec::new();
    recover(sim, CONFIG, FILES, from)?.records(sim, |_, record| found.push(record.resp.to_owned()))?;
    Ok(found)
}

fn bytes_of(sim: &Sim, file: u16, pages: u64) -> Vec<u8> {
    (0..pages).flat_map(|page| *sim.page(file, DATA_OFFSET + page * PAGE_BYTES as u64)).collect()
}

/// Which pages were read.
struct Watched<'s> {
    sim: &'s Sim,
    read: Mutex<Vec<(u16, u64)>>,
}

impl Reader for Watched<'_> {
    fn read(&self, path: u16, offset: u64, buf: &mut PageBuf) -> io::Result<()> {
        self.read.lock().unwrap().push((path, buf.pages() as u64));
        self.sim.read(path, offset, buf)
    }
}

/// A restart of 10 million keys once read 845 MB of files that the checkpoint had made superfluous.
#[test]
fn files_that_end_before_the_checkpoint_are_not_read_and_are_used_again() {
    let (sim, mut writer) = written(&[]);
    let mut ends = Vec::new();
    let resp = vec![1; 15_000];
    for _ in 0..14 {
        ends.push(append(&mut writer, &resp));
        writer.sync();
        run_operations(&mut writer, &mut sim.driver()).unwrap();
    }
    let pages_of = |from: u64| {
        let watched = Watched { sim: &sim, read: Mutex::default() };
        let recovered = recover(&watched, CONFIG, FILES, from).unwrap();
        let read = watched.read.into_inner().unwrap();
        let pages: Vec<u64> =
            (0..FILES).map(|file| read.iter().filter(|read| read.0 == file).map(|read| read.1).sum()).collect();
        (recovered, pages)
    };
    // Four frames a file. Of file 0 a later use could have begun.
    let whole = CONFIG.file_bytes / PAGE_BYTES as u64 + 1;
    let (recovered, pages) = pages_of(ends[12]);
    assert_eq!(pages, [whole, 1, 1, whole]);
    let mut found = 0;
    recovered.records(&sim, |_, _| found += 1).unwrap();
    assert_eq!(found, 1);
    assert_eq!(recovered.writer(&sim).unwrap().free_files(), 3);
    // The frame that ends there is in file 2.
    assert_eq!(pages_of(ends[11]).1, [whole, 1, whole, whole]);
    assert_eq!(pages_of(0).1, [whole; FILES as usize]);
}

/// The first frame of a file's second use is damaged so that the page has a frame of the first use again, whose body has the next
/// new frame in it.
#[test]
fn a_new_frame_in_the_place_of_an_old_one_is_seen() {
    let (sim, mut writer) = written(&[]);
    let append = |writer: &mut Writer, resp: &[u8]| {
        let end = append(writer, resp);
        writer.sync();
        run_operations(writer, &mut sim.driver()).unwrap();
        end
    };
    let checkpoint = (0..14).map(|_| append(&mut writer, &[1; 15_000])).last().unwrap();
    let old = sim.page(0, DATA_OFFSET);
    writer.needed_from(checkpoint);
    // To the end of file 3.
    for resp in [[1; 15_000]; 2] {
        append(&mut writer, &resp);
    }
    assert!(sim.page(0, DATA_OFFSET) == old);
    for resp in [PING; 2] {
        append(&mut writer, resp);
    }
    assert!(sim.page(0, DATA_OFFSET) != old);
    assert!(recover(&sim, CONFIG, FILES, checkpoint).unwrap().end() == writer.position());
    sim.set_page(0, DATA_OFFSET, &old);
    let error = recover(&sim, CONFIG, FILES, checkpoint).err().unwrap();
    assert!(matches!(error, Error::Damaged { .. } | Error::Missing { .. }), "{error}");
}

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

#[test]
fn the_format_is_frozen() {
    is_frozen(CONFIG, 7, "/tests/journal-1-now.bin");
}

#[test]
fn the_format_of_packed_frames_is_frozen() {
    is_frozen(PACKED, 3, "/tests/journal-2-now.bin");
}

/// What is not used now was the number of a stripe.
#[test]
fn records_that_name_a_stripe_are_read() {
    for path in ["/tests/journal-1.bin", "/tests/journal-2.bin"] {
        is_read(&std::fs::read(format!("{}{path}", env!("CARGO_MANIFEST_DIR"))).unwrap());
    }
}

fn is_frozen(config: Config, pages: u64, path: &str) {
    let (sim, mut writer) = written_with(config, &[PING]);
    append(&mut writer, &[b'x'; (16 << 10) + 1]);
    writer.append(&Record { db: 0, time_ms: 5, resp: PING }, 9).unwrap();
    writer.sync();
    run_operations(&mut writer, &mut sim.driver()).unwrap();
    writer.close();
    run_operations(&mut writer, &mut sim.driver()).unwrap();

    assert_eq!(writer.placed_bytes(), pages * PAGE_BYTES as u64);
    let made = bytes_of(&sim, 0, pages + 1);
    let path = format!("{}{path}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("FLINTKV_NEW_FIXTURE").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let frozen = std::fs::read(path).unwrap();
    assert!(made == frozen, "what is written has changed: it needs a new version, and this one must stay readable");
    is_read(&frozen);
}

/// Three frames: one piece; a record in two pieces and another one; the closing frame.
fn is_read(frozen: &[u8]) {
    let sim = Sim::new(1, FILES, CONFIG.file_bytes);
    for (at, page) in (0..).zip(frozen.chunks(PAGE_BYTES)) {
        sim.set_page(2, DATA_OFFSET + at * PAGE_BYTES as u64, page.try_into().unwrap());
    }
    let (recovered, mut found) = (recover(&sim, CONFIG, FILES, 0).unwrap(), Vec::new());
    recovered
        .records(&sim, |end, record| found.push((end, record.db, record.time_ms, record.resp.to_owned())))
        .unwrap();
    let long = vec![b'x'; (16 << 10) + 1];
    assert_eq!(found.len(), 3);
    assert_eq!(found[0], (38, 1, 1_700_000_000_000, PING.to_vec()));
    assert_eq!(found[1], (16_471, 1, 1_700_000_000_000, long));
    assert_eq!(found[2], (16_509, 0, 5, PING.to_vec()));
    assert_eq!((recovered.end(), recovered.replication_offset()), (16_509, Some(9)));
}

#[test]
fn reading_begins_at_any_record_and_nowhere_else() {
    let (sim, mut writer) = written(&[]);
    let ends: Vec<u64> = [PING, b"two", b"three"].iter().map(|resp| append(&mut writer, resp)).collect();
    writer.sync();
    run_operations(&mut writer, &mut sim.driver()).unwrap();
    assert_eq!(read(&sim, 0).unwrap().len(), 3);
    assert_eq!(read(&sim, ends[0]).unwrap(), [b"two".to_vec(), b"three".to_vec()]);
    assert_eq!(read(&sim, ends[2]).unwrap(), Vec::<Vec<u8>>::new());
    assert!(matches!(read(&sim, ends[0] - 1).unwrap_err(), Error::NoRecord { .. }));
    let error = read(&sim, ends[2] + 1).unwrap_err();
    assert!(matches!(error, Error::Missing { position } if position == ends[2] + 1), "{error}");
}

#[test]
fn damage_below_what_was_durable_is_refused_with_its_place() {
    let (sim, _) = written(&[b"one", b"two", b"three"]);
    for (page, byte) in [(0, 1), (0, 50), (0, 4095), (1, 100)] {
        sim.flip_bit_at(0, DATA_OFFSET + page * 4096 + byte, 3);
        let error = read(&sim, 0).unwrap_err();
        let Error::Damaged { file: 0, offset, position } = error else { panic!("{error}") };
        assert_eq!((offset, position), (DATA_OFFSET + page * 4096, page * 27));
        assert!(error.to_string().starts_with(&format!("journal file 0 is damaged at offset {offset}: ")), "{error}");
        sim.flip_bit_at(0, DATA_OFFSET + page * 4096 + byte, 3);
    }
    // The header of a torn frame tells what was durable, too.
    sim.flip_bit_at(0, DATA_OFFSET + 4096 + 100, 3);
    sim.flip_bit_at(0, DATA_OFFSET + 2 * 4096 + 100, 3);
    assert!(matches!(read(&sim, 0).unwrap_err(), Error::Damaged { file: 0, position: 27, .. }));
    sim.flip_bit_at(0, DATA_OFFSET + 4096 + 100, 3);
    sim.flip_bit_at(0, DATA_OFFSET + 2 * 4096 + 100, 3);
    // No later frame says that the last one was durable.
    sim.flip_bit_at(0, DATA_OFFSET + 2 * 4096 + 100, 3);
    assert_eq!(read(&sim, 0).unwrap(), [b"one".to_vec(), b"two".to_vec()]);
}

#[test]
fn after_a_clean_stop_damage_in_the_last_frame_is_refused_too() {
    let (sim, mut writer) = written(&[b"one", b"two"]);
    writer.close();
    run_operations(&mut writer, &mut sim.driver()).unwrap();
    sim.crash([]);
    assert_eq!(read(&sim, 0).unwrap().len(), 2);
    sim.flip_bit_at(0, DATA_OFFSET + 4096 + 100, 3);
    assert!(matches!(read(&sim, 0).unwrap_err(), Error::Damaged { file: 0, position: 27, .. }));
}

/// Every file of a journal of several files, emptied.
#[test]
fn a_missing_file_is_refused() {
    let record = [7; 15 << 10];
    let (sim, mut writer) = written(&[&record[..]; 12]);
    writer.close();
    run_operations(&mut writer, &mut sim.driver()).unwrap();
    assert_eq!(read(&sim, 0).unwrap().len(), 12);
    for file in 0..3 {
        let pages = bytes_of(&sim, file, 16);
        assert!(pages.iter().any(|&byte| byte != 0), "file {file} is in use");
        (0..16).for_each(|page| sim.set_page(file, DATA_OFFSET + page * 4096, &[0; 4096]));
        let error = read(&sim, 0).unwrap_err();
        assert!(matches!(error, Error::Missing { .. }), "file {file}: {error}");
        for (at, page) in (0..).zip(pages.chunks(4096)) {
            sim.set_page(file, DATA_OFFSET + at * 4096, page.try_into().unwrap());
        }
    }
    assert_eq!(read(&sim, 0).unwrap().len(), 12);
}

#[test]
fn the_pages_behind_the_needed_position_are_known_also_after_a_restart() {
    let (sim, mut writer) = written_with(PACKED, &[]);
    let page = PAGE_BYTES as u64;
    let mut ends = Vec::new();
    for at in 0..3 {
        append(&mut writer, &random_record(at, 15_000));
        writer.sync();
        run_operations(&mut writer, &mut sim.driver()).unwrap();
        ends.push(writer.durable());
    }
    assert_eq!(writer.needed_bytes(), 12 * page);
    let recovered = recover(&sim, PACKED, FILES, 0).unwrap();
    assert_eq!(recovered.writer(&sim).unwrap().needed_bytes(), 8 * page, "the last frame is copied");
    writer.needed_from(ends[2]);
    assert_eq!(writer.needed_bytes(), 0);
    append(&mut writer, PING);
    writer.sync();
    run_operations(&mut writer, &mut sim.driver()).unwrap();
    assert_eq!(writer.needed_bytes(), page);
}

/// Long enough for several readers of files and of frames.
#[test]
fn records_that_several_threads_read_come_in_order() {
    let config = Config { file_bytes: 4 << 20, frame_bytes: 128 << 10, buffer_bytes: 16 << 20, ..CONFIG };
    let sim = Sim::new(1, FILES, config.file_bytes).with_cache();
    let mut writer = Writer::new(config, FILES);
    let records: Vec<Vec<u8>> = (0..600).map(|at| random_record(at, 12_000 + at as usize * 7 % 5000)).collect();
    for half in records.chunks(300) {
        for resp in half {
            append(&mut writer, resp);
        }
        writer.sync();
        run_operations(&mut writer, &mut sim.driver()).unwrap();
    }
    let recovered = recover(&sim, config, FILES, 0).unwrap();
    let mut found = Vec::new();
    recovered.records(&sim, |_, record| found.push(record.resp.to_owned())).unwrap();
    assert!(found == records);
    assert_eq!(recovered.writer(&sim).unwrap().free_files(), 1);
    // The second half says that the first one was durable: who reads its records finds the damage, and who looks for them does not read them.
    sim.flip_bit_at(0, DATA_OFFSET + 2_000_000, 3);
    let watched = Watched { sim: &sim, read: Mutex::default() };
    let recovered = recover(&watched, config, FILES, 0).unwrap();
    let read = watched.read.into_inner().unwrap();
    let pages: u64 = read.iter().filter(|read| read.0 == 0).map(|read| read.1).sum();
    assert!(pages < config.file_bytes / PAGE_BYTES as u64 / 2, "{pages}");
    assert!(matches!(recovered.records(&sim, |_, _| {}), Err(Error::Damaged { file: 0, .. })));
}

/// A frame whose write failed is written again in another file, and nobody knows which of the two the device has.
#[test]
fn of_two_frames_with_the_same_records_the_whole_one_counts() {
    let records = [1, 2, 3, 4, 5, 6].map(|byte| vec![byte; 15_000]);
    for torn in [0, 3] {
        let (sim, _writer) = written(&records.each_ref().map(|record| &record[..]));
        let copied = (0..8).map(|page| DATA_OFFSET + page * PAGE_BYTES as u64);
        copied.for_each(|offset| sim.set_page(3, offset, &sim.page(0, offset)));
        assert!(read(&sim, 0).unwrap() == records);
        sim.flip_bit_at(torn, DATA_OFFSET + 2 * PAGE_BYTES as u64, 3);
        assert!(read(&sim, 0).unwrap() == records, "{torn}");
        sim.flip_bit_at(3 - torn, DATA_OFFSET + 3 * PAGE_BYTES as u64, 3);
        assert!(matches!(read(&sim, 0), Err(Error::Damaged { .. })), "{torn}");
    }
}

/// A record of so many random bytes.
fn random_record(seed: u64, bytes: usize) -> Vec<u8> {
    base::random::SplitMix64(seed).bytes(bytes)
}

#[test]
fn frames_that_get_hardly_smaller_are_not_packed_and_seldom_tried() {
    let (sim, mut writer) = written_with(PACKED, &[]);
    let page = PAGE_BYTES as u64;
    let mut placed = |resp: &[u8]| {
        let before = writer.placed_bytes();
        append(&mut writer, resp);
        writer.sync();
        run_operations(&mut writer, &mut sim.driver()).unwrap();
        writer.needed_from(writer.durable());
        (writer.placed_bytes() - before) / page
    };
    let same = [b'x'; 15_000];
    assert_eq!(placed(&same), 1);
    assert_eq!(placed(&random_record(1, 15_000)), 4);
    // Fifteen are not tried, then one is, which gets smaller, and the next ones do.
    assert_eq!([(); 15].map(|()| placed(&same)), [4; 15]);
    assert_eq!([(); 3].map(|()| placed(&same)), [1; 3]);
    // Too short to be tried.
    assert_eq!(placed(&[b'x'; 8_000]), 2);
}

#[test]
fn every_flipped_bit_of_a_packed_frame_is_found() {
    let text: Vec<u8> = (0..2_000).flat_map(|at: u32| format!("{} and ", at % 700).into_bytes()).collect();
    let (sim, writer) = written_with(PACKED, &[&text[..15_000], PING]);
    let packed_pages = writer.placed_bytes() / PAGE_BYTES as u64 - 1;
    assert!((1..4).contains(&packed_pages));
    assert_eq!(read(&sim, 0).unwrap()[0], text[..15_000]);
    for offset in (0..packed_pages * PAGE_BYTES as u64).step_by(7) {
        sim.flip_bit_at(0, DATA_OFFSET + offset, (offset % 8) as u8);
        let error = read(&sim, 0).expect_err("a damaged frame");
        assert!(matches!(error, Error::Damaged { .. } | Error::Missing { .. }), "{offset}: {error}");
        sim.flip_bit_at(0, DATA_OFFSET + offset, (offset % 8) as u8);
    }
    read(&sim, 0).unwrap();
}

/// A frame with a right checksum whose block is wrong: somebody made it. It must not be believed, nor cost more memory than it may have.
#[test]
fn a_forged_block_is_damage() {
    for (at, byte) in [(80, 0xFF), (81, 0xFF), (82, 0x7F), (96, 0x00), (97, 0xFF), (84, 0x01)] {
        let (sim, _) = written_with(PACKED, &[&[b'x'; 15_000], PING]);
        let mut page = sim.page(0, DATA_OFFSET);
        assert_eq!(page[4], 2);
        page[at] = byte;
        let stored = u32::from_le_bytes(page[84..88].try_into().unwrap()) as usize;
        let body = base::crc::crc32c(&page[96..96 + stored]);
        page[12..16].copy_from_slice(&body.to_le_bytes());
        let crc = base::crc::crc32c_append(base::crc::crc32c(&page[..8]), &page[12..96]);
        page[8..12].copy_from_slice(&crc.to_le_bytes());
        sim.set_page(0, DATA_OFFSET, &page);
        assert!(read(&sim, 0).is_err(), "byte {at}");
    }
}

#[test]
fn files_of_another_journal_and_of_later_versions_are_refused() {
    let (sim, _) = written(&[b"one"]);
    let other = Config { log_id: [0xAB; 16], ..CONFIG };
    let error = recover(&sim, other, FILES, 0).err().unwrap();
    let text = "journal file 0 belongs to another journal, 30313233343536373839616263646566";
    assert_eq!(error.to_string(), text);

    let mut page = sim.page(0, DATA_OFFSET);
    page[4] = 3;
    let crc = base::crc::crc32c_append(base::crc::crc32c(&page[..8]), &page[12..96]);
    page[8..12].copy_from_slice(&crc.to_le_bytes());
    sim.set_page(0, DATA_OFFSET, &page);
    let text = "journal file 0 has a frame of format 3 at offset 1048576; this release reads formats up to 2";
    assert_eq!(read(&sim, 0).unwrap_err().to_string(), text);
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let (sim, _) = written(&[b"one"]);
    sim.fail_reads_in(1, DATA_OFFSET..DATA_OFFSET + 1);
    let error = read(&sim, 0).unwrap_err();
    assert!(matches!(error, Error::Read { file: 1, offset: DATA_OFFSET, .. }), "{error}");
}

/// One failure is survived; the next one before anything succeeded is not.
#[test]
fn a_failed_write_or_sync_goes_on_in_a_fresh_file_and_a_second_failure_is_an_error() {
    for is_sync in [false, true] {
        let (sim, mut writer) = written(&[b"one"]);
        let fail = || if is_sync { sim.fail_next_sync() } else { sim.fail_next_write() };
        append(&mut writer, b"two");
        writer.sync();
        fail();
        run_operations(&mut writer, &mut sim.driver()).unwrap();
        assert_eq!(writer.durable(), writer.position());
        assert_ne!(bytes_of(&sim, 1, 1), vec![0; 4096], "the fresh file");
        sim.crash([]);
        assert_eq!(read(&sim, 0).unwrap(), [b"one".to_vec(), b"two".to_vec()]);

        append(&mut writer, b"three");
        writer.sync();
        fail();
        fail();
        let failed = run_operations(&mut writer, &mut sim.driver()).unwrap_err();
        let action = if is_sync { "sync" } else { "write" };
        assert!(failed.to_string().starts_with(&format!("cannot {action} journal file 2:")), "{failed}");
        let record = Record { db: 0, time_ms: 0, resp: b"four" };
        assert_eq!(writer.append(&record, 0), Err(journal::Refused::Failed));
    }
}

#[test]
fn a_full_buffer_refuses_and_a_full_journal_waits_for_a_checkpoint() {
    let (sim, mut writer) = written(&[]);
    let resp = vec![1; 100_000];
    let record = Record { db: 0, time_ms: 0, resp: &resp };
    while writer.append(&record, 0).is_ok() {}
    assert_eq!(writer.append(&record, 0), Err(journal::Refused::Full));
    assert!(writer.position() <= CONFIG.buffer_bytes);
    writer.sync();
    run_operations(&mut writer, &mut sim.driver()).unwrap();
    assert!(writer.needs_file());
    let before = writer.durable();
    assert!(before > 200_000, "{before}");
    // The checkpoint is cut at the end of a record.
    let bytes = journal::stored_bytes(resp.len());
    writer.needed_from(before / bytes * bytes);
    run_operations(&mut writer, &mut sim.driver()).unwrap();
    assert!(writer.durable() > before);
    let mut page = flash::io::PageBuf::new(1);
    sim.read(0, DATA_OFFSET, &mut page).unwrap();
    assert_ne!(page[36..40], 1u32.to_le_bytes(), "the first file is used again");
}
