//! If a kernel, a sandbox or a file system refuses something, flash works without it. A seccomp filter on the test's
//! own thread simulates the refusal.

use std::io;
use std::path::Path;
use std::sync::Arc;

use flash::io::{Done, Driver, Op, OpKind, PageBuf};
use flash::{DATA_OFFSET, FlashFiles, FlashIo, OpenError, ThreadPool, Uring, choose_driver, open_driver};

const MIB: u64 = 1 << 20;

/// Runs `test` on a thread on which the system call fails with `errno`.
fn refusing(syscall: libc::c_long, errno: i32, test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            refuse(syscall as u32, errno as u32);
            test();
        });
    });
}

fn refuse(syscall: u32, errno: u32) {
    let rule = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut rules = [
        // The number of the system call is the first word of seccomp_data.
        rule(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        rule(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, syscall),
        rule(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno),
        rule(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: rules.len() as u16, filter: rules.as_mut_ptr() };
    // SAFETY: plain system calls. The program outlives them, and the filter affects this thread only.
    let (privileges, filter) = unsafe {
        let program = std::ptr::from_ref(&program);
        (
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, program),
        )
    };
    assert_eq!(privileges, 0);
    assert_eq!(filter, 0, "{}", io::Error::last_os_error());
}

fn open(dir: &Path) -> Result<Arc<FlashFiles>, OpenError> {
    FlashFiles::open(&[dir.to_owned()], "flintkv-test.log", 4 * MIB).map(Arc::new)
}

fn run(driver: &mut dyn Driver, kind: OpKind) -> Done {
    driver.push(Op { token: 1, path: 0, offset: DATA_OFFSET, kind });
    driver.submit();
    let mut done = Vec::new();
    driver.wait();
    driver.reap(&mut done);
    done.remove(0)
}

fn write_and_read_back(driver: &mut dyn Driver) {
    let mut page = PageBuf::new(1);
    page.fill(0x5A);
    run(driver, OpKind::Write(page)).result.unwrap();
    let done = run(driver, OpKind::Read(PageBuf::new(1)));
    done.result.unwrap();
    assert!(done.buf.unwrap().iter().all(|&byte| byte == 0x5A));
    run(driver, OpKind::Discard { bytes: 4096 }).result.unwrap();
}

#[test]
fn without_io_uring_auto_falls_back_to_threads() {
    let scratch = tempfile::tempdir().unwrap();
    let files = open(scratch.path()).unwrap();
    for errno in [libc::EPERM, libc::ENOSYS, libc::EACCES, libc::ENOMEM] {
        refusing(libc::SYS_io_uring_setup, errno, || {
            let pool = ThreadPool::new(2);
            write_and_read_back(&mut *open_driver(&files, FlashIo::Auto, &pool).unwrap());
            let forced = open_driver(&files, FlashIo::Uring, &pool).err().unwrap();
            assert_eq!(forced.raw_os_error(), Some(errno));
        });
    }
}

#[test]
fn a_ring_that_accepts_no_files_is_a_refusal_too() {
    let scratch = tempfile::tempdir().unwrap();
    let files = open(scratch.path()).unwrap();
    refusing(libc::SYS_io_uring_register, libc::ENOMEM, || {
        write_and_read_back(&mut *open_driver(&files, FlashIo::Auto, &ThreadPool::new(2)).unwrap());
    });
}

#[test]
fn the_choice_asks_only_for_what_it_needs() {
    let refuse = || Err(io::Error::from_raw_os_error(libc::EPERM));
    let never = || panic!("not asked for");
    let scratch = tempfile::tempdir().unwrap();
    let files = open(scratch.path()).unwrap();
    let uring = || Ok(Box::new(Uring::new(files.clone(), 8)?) as Box<dyn Driver>);
    let pool = ThreadPool::new(1);
    let threads = || Ok(Box::new(pool.driver(files.clone())?) as Box<dyn Driver>);

    assert!(choose_driver(FlashIo::Auto, uring, never).is_ok());
    assert!(choose_driver(FlashIo::Uring, uring, never).is_ok());
    assert!(choose_driver(FlashIo::Threads, never, threads).is_ok());
    assert!(choose_driver(FlashIo::Auto, refuse, threads).is_ok());
    assert!(choose_driver(FlashIo::Uring, refuse, never).is_err());
    assert!(choose_driver(FlashIo::Auto, refuse, refuse).is_err());
}

#[test]
fn without_fallocate_the_log_is_sparse_and_discards_do_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    refusing(libc::SYS_fallocate, libc::EOPNOTSUPP, || {
        let files = open(scratch.path()).unwrap();
        let info = files.describe().next().unwrap();
        assert!(!info.preallocated);
        assert!(!info.discard);
        let pool = ThreadPool::new(1);
        for which in [FlashIo::Uring, FlashIo::Threads] {
            write_and_read_back(&mut *open_driver(&files, which, &pool).unwrap());
        }
    });
    let log = std::fs::metadata(scratch.path().join("flintkv-test.log")).unwrap();
    assert_eq!(log.len(), DATA_OFFSET + 4 * MIB);
}

#[test]
fn a_disk_that_is_full_at_fallocate_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    refusing(libc::SYS_fallocate, libc::ENOSPC, || {
        let error = open(scratch.path()).unwrap_err();
        assert!(matches!(error, OpenError::NoSpace { .. }), "{error}");
    });
    assert!(!scratch.path().join("flintkv-test.log").exists(), "nothing is left behind");
}

/// The superblock fails last, when the files are longer already. The files must shrink back, and grow the next time.
#[test]
fn a_failed_growth_is_undone() {
    let scratch = tempfile::tempdir().unwrap();
    let paths = [scratch.path().join("0"), scratch.path().join("1")];
    let files = FlashFiles::open(&paths, "log", 4 * MIB).unwrap();
    let lengths = || paths.each_ref().map(|path| std::fs::metadata(path.join("log")).unwrap().len() - DATA_OFFSET);
    refusing(libc::SYS_pwritev2, libc::EIO, || {
        let error = files.sizing().set(8 * MIB).unwrap_err();
        assert!(error.to_string().contains("cannot write the superblock of"), "{error}");
        assert_eq!((lengths(), files.data_bytes()), ([4 * MIB; 2], 4 * MIB));
        files.sizing().set(2 * MIB).unwrap_err();
        assert_eq!((lengths(), files.data_bytes()), ([4 * MIB; 2], 4 * MIB));
    });
    refusing(libc::SYS_fallocate, libc::ENOSPC, || {
        let error = files.sizing().set(8 * MIB).unwrap_err();
        assert!(matches!(error, OpenError::NoSpace { .. }), "{error}");
        assert_eq!((lengths(), files.data_bytes()), ([4 * MIB; 2], 4 * MIB));
    });
    refusing(libc::SYS_fallocate, libc::EOPNOTSUPP, || files.sizing().set(8 * MIB).unwrap());
    assert_eq!((lengths(), files.data_bytes()), ([8 * MIB; 2], 8 * MIB));
}

#[test]
fn without_o_direct_flash_is_buffered() {
    let scratch = tempfile::tempdir().unwrap();
    refusing(libc::SYS_fcntl, libc::EINVAL, || {
        let files = open(scratch.path()).unwrap();
        assert!(!files.describe().next().unwrap().o_direct);
        write_and_read_back(&mut *open_driver(&files, FlashIo::Auto, &ThreadPool::new(1)).unwrap());
    });
}

#[test]
fn a_sync_that_the_file_system_refuses_is_an_error() {
    let scratch = tempfile::tempdir().unwrap();
    let files = open(scratch.path()).unwrap();
    run(&mut *open_driver(&files, FlashIo::Threads, &ThreadPool::new(1)).unwrap(), OpKind::Sync).result.unwrap();
    // The threads of a pool start with the filter of the thread that starts them.
    refusing(libc::SYS_fdatasync, libc::EIO, || {
        let mut driver = open_driver(&files, FlashIo::Threads, &ThreadPool::new(1)).unwrap();
        let error = run(&mut *driver, OpKind::Sync).result.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
    });
}
