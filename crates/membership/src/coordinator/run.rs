//! Owns the life of this node's member of etcd: waiting until there is one, starting it, starting it again, and stopping it. Never
//! knows what is kept in etcd.

use crate::coordinator::Log;
use crate::coordinator::certificates::{self, Told};
use crate::coordinator::data::{DataDir, DataError, Mark};
use crate::coordinator::notify::Notify;
use crate::coordinator::process::{End, Options, Process};
use crate::coordinator::program::{Program, ProgramError};
use crate::etcd::etcd_options;
use crate::folder::{EtcdMember, Folder, FolderError, Member};
use crate::standing::{Removal, ask_neighbours};
use config::Config;
use coord::{Coord, Error, Etcd};
use pki::{Credential, CurrentCredential};
use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::time::sleep;

/// sysexits.h's EX_CONFIG: starting again does not help. The systemd units name it in `RestartPreventExitStatus`.
const NO_RESTART: u8 = 78;
const WAITING: &str = "waiting until this node inits or joins a cluster: flintkv cluster init | join";
/// How often the files are looked at, and etcd is asked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often the process and the order to stop are looked at.
const POLL: Duration = Duration::from_millis(50);
/// How often what etcd is told of certificates is compared with the records.
const CERTIFICATES_EVERY: Duration = Duration::from_secs(2);
/// How often other nodes are asked whether this one was removed, while etcd does not answer.
const STANDING_EVERY: Duration = Duration::from_secs(5);
/// Between an end of etcd and the next start: twice as long each time.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A node that leaves its cluster removes its member first, and then its files.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
/// For one question to one member of etcd.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);

/// Why the coordinator ends by itself. Except for `Io`, starting it again does not help.
#[derive(Debug)]
pub enum RunError {
    Program(ProgramError),
    Data(DataError),
    Folder(FolderError),
    /// By the other members.
    Removed {
        data: PathBuf,
    },
    Io(io::Error),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Program(error) => error.fmt(f),
            RunError::Data(error) => error.fmt(f),
            RunError::Folder(error) => error.fmt(f),
            RunError::Removed { data } => write!(
                f,
                "this node's member of etcd was removed from the cluster, and its data in {} are of no use any more. If the node \
                 is to run one again, let it leave the cluster and join again",
                data.display()
            ),
            RunError::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RunError {}

impl RunError {
    /// What the process ends with.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            RunError::Io(_) => ExitCode::FAILURE,
            _ => ExitCode::from(NO_RESTART),
        }
    }
}

impl From<ProgramError> for RunError {
    fn from(error: ProgramError) -> RunError {
        RunError::Program(error)
    }
}

impl From<DataError> for RunError {
    fn from(error: DataError) -> RunError {
        RunError::Data(error)
    }
}

impl From<FolderError> for RunError {
    fn from(error: FolderError) -> RunError {
        RunError::Folder(error)
    }
}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> RunError {
        RunError::Io(error)
    }
}

/// What the coordinator works with as long as it runs.
pub struct Coordinator<'a> {
    config: &'a Config,
    folder: Folder,
    shutdown: &'a AtomicBool,
    log: &'a Log,
    notify: Arc<Notify>,
    runtime: Runtime,
}

/// Why etcd is not watched any longer.
enum Parted {
    Ended(End),
    /// The node has left its cluster, or joined another one.
    Left,
    /// Something is not to be done any more by this run of etcd.
    Cared(Cared),
    Shutdown,
}

/// What ends a run of etcd that has done nothing wrong.
#[derive(Debug)]
enum Cared {
    /// It must be told something of certificates that it reads at its start only.
    Restart,
    Removed(Removal),
}

impl<'a> Coordinator<'a> {
    /// Runs until `shutdown` is set. etcd lives no longer than the calling thread.
    pub fn run(config: &Config, shutdown: &AtomicBool, log: &Log) -> Result<(), RunError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let notify = Arc::new(Notify::find(config.supervised));
        let coordinator = Coordinator { config, folder: Folder::of(config), shutdown, log, notify, runtime };
        let ended = coordinator.live();
        coordinator.notify.say("STOPPING=1");
        ended
    }

    fn live(&self) -> Result<(), RunError> {
        let mut is_told = false;
        while !self.shutdown.load(Relaxed) {
            match self.folder.etcd_member()? {
                Some(member) => {
                    is_told = false;
                    self.runtime.block_on(self.be(&member))?;
                }
                None => {
                    if !is_told {
                        is_told = true;
                        (self.log)(WAITING);
                        // It does what it is there for.
                        self.notify.say(&format!("READY=1\nSTATUS={WAITING}"));
                    }
                    self.runtime.block_on(self.pause(LOOK_EVERY, || false));
                }
            }
        }
        Ok(())
    }

    /// Runs etcd as this member, until the node leaves the cluster or the coordinator stops.
    async fn be(&self, member: &EtcdMember) -> Result<(), RunError> {
        let program = Program::find(&self.config.etcd_binary)?;
        let data = DataDir::open(self.config)?;
        if let Some(said) = data.prepare(&self.folder, member, base::clock::wall_ms())? {
            (self.log)(&said);
        }
        let options =
            Options { config: self.config, folder: &self.folder, member, data: data.path(), force_new_cluster: false };
        let mut pause = PAUSE;
        while !self.shutdown.load(Relaxed) && self.is_still(member) {
            let began = Instant::now();
            let why = match options.obstacle() {
                Some(why) => why,
                None => match self.start_etcd(&program, &options) {
                    Err(why) => why,
                    Ok((etcd, told)) => match self.attend(etcd, told, &program, member, &data).await? {
                        Parted::Left | Parted::Shutdown => return Ok(()),
                        Parted::Cared(Cared::Restart) => continue,
                        Parted::Cared(Cared::Removed(removal)) => {
                            (self.log)(&removal.to_string());
                            return self.removed(member, &data).await;
                        }
                        Parted::Ended(end) if end.was_removed => return self.removed(member, &data).await,
                        Parted::Ended(end) => said_at_end(&end, &data),
                    },
                },
            };
            if began.elapsed() > PAUSE_MAX {
                pause = PAUSE;
            }
            let text = format!("{why}; etcd is started in {} s", pause.as_secs());
            (self.log)(&text);
            self.notify.say(&format!("STATUS={text}"));
            self.pause(pause, || !self.is_still(member)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        Ok(())
    }

    fn start_etcd(&self, program: &Program, options: &Options<'_>) -> Result<(Process, Told), String> {
        if let Err(why) = certificates::renew_list(&self.folder, base::clock::wall_ms()) {
            (self.log)(&format!("the list of revoked certificates was not written: {why}"));
        }
        // Before it starts: what changes while it reads its files is told to the next run.
        let told = Told::read(&self.folder)?;
        let started = Process::start(program, options, self.log);
        started
            .map(|etcd| (etcd, told))
            .map_err(|error| format!("{} cannot be started: {error}", program.path.display()))
    }

    async fn attend(
        &self,
        mut etcd: Process,
        told: Told,
        program: &Program,
        member: &EtcdMember,
        data: &DataDir,
    ) -> Result<Parted, RunError> {
        (self.log)(&format!(
            "etcd {} is started as process {} on {}, with its data in {}",
            program.full_version,
            etcd.pid(),
            member.client_url(),
            data.path().display()
        ));
        let care = Care {
            folder: self.folder.clone(),
            member: member.clone(),
            log: Arc::clone(self.log),
            notify: Arc::clone(&self.notify),
        };
        let mut caring = tokio::spawn(care.run(told));
        let parted = tokio::select! {
            parted = self.watch(&mut etcd, member) => parted,
            cared = &mut caring => cared.map(Parted::Cared).map_err(|error| RunError::Io(io::Error::other(error))),
        };
        caring.abort();
        if matches!(parted, Ok(Parted::Left | Parted::Cared(_) | Parted::Shutdown)) {
            (self.log)("etcd is stopped");
            etcd.stop()?;
        }
        parted
    }

    async fn watch(&self, etcd: &mut Process, member: &EtcdMember) -> Result<Parted, RunError> {
        let mut look_at = Instant::now() + LOOK_EVERY;
        loop {
            sleep(POLL).await;
            if self.shutdown.load(Relaxed) {
                return Ok(Parted::Shutdown);
            }
            if let Some(end) = etcd.ended()? {
                return Ok(Parted::Ended(end));
            }
            if Instant::now() >= look_at {
                look_at = Instant::now() + LOOK_EVERY;
                if !self.is_still(member) {
                    (self.log)("this node has left its cluster");
                    return Ok(Parted::Left);
                }
            }
        }
    }

    async fn removed(&self, member: &EtcdMember, data: &DataDir) -> Result<(), RunError> {
        if self.pause(LEAVE_TIMEOUT, || !self.is_still(member)).await {
            (self.log)("this node has left its cluster");
            return Ok(());
        }
        Err(RunError::Removed { data: data.path().to_owned() })
    }

    /// A file that cannot be read now proves nothing: etcd goes on.
    fn is_still(&self, member: &EtcdMember) -> bool {
        self.folder.etcd_member().map_or(true, |now| now.as_ref() == Some(member))
    }

    /// True: it ended early, because `is_over`. The order to stop ends it too.
    async fn pause(&self, span: Duration, is_over: impl Fn() -> bool) -> bool {
        let until = Instant::now() + span;
        while Instant::now() < until && !self.shutdown.load(Relaxed) {
            if is_over() {
                return true;
            }
            sleep(POLL).await;
        }
        false
    }
}

fn said_at_end(end: &End, data: &DataDir) -> String {
    match end.is_full {
        true => format!("etcd ended ({}): the device of {} is full: free space", end.status, data.path().display()),
        false => format!("etcd ended ({})", end.status),
    }
}

/// What is done beside watching the process: to see that etcd answers, to make it a voter, to tell it what it must know of certificates,
/// and to learn whether this node was removed.
struct Care {
    folder: Folder,
    member: EtcdMember,
    log: Log,
    notify: Arc<Notify>,
}

impl Care {
    async fn run(self, told: Told) -> Cared {
        tokio::select! {
            () = self.attend(&told) => Cared::Restart,
            removal = self.removal() => Cared::Removed(removal),
        }
    }

    /// Returns when etcd is to be restarted.
    async fn attend(&self, told: &Told) {
        self.notify.say("STATUS=etcd is started; it answers as soon as a majority of its cluster runs");
        self.until("etcd does not answer yet", || self.is_up(told)).await;
        let url = self.member.client_url();
        (self.log)(&format!("etcd answers at {url}"));
        self.notify.say(&format!("READY=1\nSTATUS=etcd answers at {url}"));
        if !self.member.is_new {
            self.until("this node's member of etcd does not vote yet", || self.is_voter()).await;
            (self.log)("this node's member of etcd votes");
            self.notify.say(&format!("STATUS=etcd answers at {url}, and votes"));
        }
        // If it fails, the turn ends by itself.
        let _ = self.end_turn().await;
        let mut said = String::new();
        loop {
            sleep(CERTIFICATES_EVERY).await;
            match self.update_certificates(told).await {
                Ok(true) => break,
                Ok(false) => said.clear(),
                Err(why) if why == said => {}
                Err(why) => {
                    (self.log)(&format!("etcd may not know yet which certificates count: {why}"));
                    said = why;
                }
            }
        }
        (self.log)("etcd is restarted: it does not end connections whose certificates count no more by itself");
    }

    async fn update_certificates(&self, told: &Told) -> Result<bool, String> {
        let now_ms = base::clock::wall_ms();
        certificates::repair(&self.folder, told, now_ms)?;
        let (member, credential) = self.membership()?;
        let etcd = client(&member, &credential, &[self.member.client_url()])?;
        certificates::update(&self.folder, &self.member, &member, &etcd, told, now_ms).await
    }

    async fn end_turn(&self) -> Result<(), String> {
        let (member, credential) = self.membership()?;
        let etcd = client(&member, &credential, &[self.member.client_url()])?;
        certificates::end_turn(&self.member, &member, &etcd).await.map_err(|error| error.to_string())
    }

    /// Returns when other nodes say that this one was removed. They are asked while etcd does not answer: it does not talk to a member that
    /// was removed, nor to a node whose certificate is revoked.
    async fn removal(&self) -> Removal {
        loop {
            sleep(STANDING_EVERY).await;
            if self.answers().await.is_ok() {
                continue;
            }
            // What keeps this node from asking keeps etcd from answering too, and that is logged.
            if let Ok(Some(removal)) = self.ask_neighbours().await {
                return removal;
            }
        }
    }

    async fn ask_neighbours(&self) -> Result<Option<Removal>, String> {
        let (member, credential) = self.membership()?;
        let trust = self.folder.trust(&member).map_err(|error| error.to_string())?;
        let neighbours = self.folder.neighbours().map_err(|error| error.to_string())?;
        let asked = ask_neighbours(&neighbours, &CurrentCredential::new(credential), &trust).await;
        asked.map_err(|refusal| refusal.to_string())
    }

    /// Asks once a second. A reason is logged when it changes.
    async fn until<F: Future<Output = Result<(), String>>>(&self, what: &str, done: impl Fn() -> F) {
        let mut told = String::new();
        while let Err(why) = done().await {
            if why != told {
                (self.log)(&format!("{what}: {why}"));
                self.notify.say(&format!("STATUS={what}: {why}"));
                told = why;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    async fn is_up(&self, told: &Told) -> Result<(), String> {
        certificates::repair(&self.folder, told, base::clock::wall_ms())?;
        self.answers().await?;
        Mark::Started.write(&self.folder, &self.member).map_err(|error| error.to_string())
    }

    async fn answers(&self) -> Result<(), String> {
        let (member, credential) = self.membership()?;
        let etcd = client(&member, &credential, &[self.member.client_url()])?;
        match etcd.get("answers").await {
            // A learner answers nothing else.
            Err(Error::Lost(why) | Error::Refused(why)) if why.contains("learner") => Ok(()),
            answer => answer.map(drop).map_err(|error| error.to_string()),
        }
    }

    /// Asks the other members: a learner does not promote itself.
    async fn is_voter(&self) -> Result<(), String> {
        let (member, credential) = self.membership()?;
        let own = self.member.client_url();
        let others: Vec<String> = member.etcd.endpoints.iter().filter(|url| **url != own).cloned().collect();
        if others.is_empty() {
            return Err(format!("{} names no other member", self.folder.member_file().display()));
        }
        let etcd = client(&member, &credential, &others)?;
        let listed = etcd.members().await.map_err(|error| error.to_string())?;
        // Its name is known only since it started.
        let is_own = |urls: &[String]| urls.contains(&self.member.peer_url());
        let known = listed.iter().find(|known| known.name == self.member.name || is_own(&known.peer_urls));
        match known {
            None => Err("the others do not list it".to_owned()),
            Some(known) if known.is_learner => {
                etcd.promote(known.id).await.map_err(|error| error.to_string())?;
                Err("it was promoted".to_owned())
            }
            Some(_) => Ok(()),
        }
    }

    /// `member.json` is written last when a node joins.
    fn membership(&self) -> Result<(Member, Credential), String> {
        let member = self.folder.member().map_err(|error| error.to_string())?;
        let member = member.ok_or_else(|| format!("{} is not there yet", self.folder.member_file().display()))?;
        let credential = self.folder.credential(base::clock::wall_ms()).map_err(|error| error.to_string())?;
        Ok((member, credential))
    }
}

fn client(member: &Member, credential: &Credential, endpoints: &[String]) -> Result<Etcd, String> {
    let options = etcd_options(member, credential, endpoints);
    Etcd::new(coord::etcd::Options { timeout: ASK_TIMEOUT, ..options }).map_err(|error| error.to_string())
}
