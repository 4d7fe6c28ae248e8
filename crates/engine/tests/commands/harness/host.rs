//! A host for handlers that ask nothing of a server. It allows DEBUG, and answers requests about libraries with
//! success.

use commands::host::*;
use commands::job::FunctionsChange;
use commands::session::Session;
use commands::{Reached, Run, Stop, UntilReached};
use std::time::Duration;

pub struct NoServer;

fn no_server() -> ! {
    panic!("this handler was not to ask the server")
}

impl Scripting for NoServer {
    fn script_load(&self, _: &[u8]) -> Result<[u8; 40], String> {
        no_server()
    }
    fn script_exists(&self, _: &[u8]) -> bool {
        no_server()
    }
    fn script_flush(&self) {
        no_server()
    }
    fn script_kill(&self) -> Result<(), &'static str> {
        no_server()
    }
    fn library_name(&self, _: &[u8]) -> Result<String, String> {
        Ok("library".to_owned())
    }
    fn change_functions(&self, _: &mut Session, change: FunctionsChange) -> Run {
        match change {
            FunctionsChange::Delete { library } if *library == *b"nosuch" => Err(Stop::error("ERR Library not found")),
            _ => Ok(()),
        }
    }
    fn function_list(&self, _: Option<&[u8]>) -> Vec<LibraryCard> {
        Vec::new()
    }
    fn function_dump(&self) -> Vec<u8> {
        no_server()
    }
    fn function_kill(&self) -> Result<(), &'static str> {
        no_server()
    }
    fn function_stats(&self) -> Result<FunctionStats, &'static str> {
        no_server()
    }
}

/// A primary without replicas.
impl Replication for NoServer {
    fn written_offset(&self, _: &Session) -> u64 {
        0
    }
    fn reached(&self, _: &UntilReached) -> Reached {
        Reached { here: false, replicas: 0 }
    }
    fn ask_replicas(&self, _: u64) -> u64 {
        0
    }
    fn is_replica(&self) -> bool {
        false
    }
    fn role(&self) -> Role {
        Role::Primary { offset: 0, replicas: Vec::new() }
    }
    fn fail_over(&self, _: Failover) -> Run {
        Err(Stop::error("ERR FAILOVER requires connected replicas."))
    }
    fn abort_failover(&self, _: &mut Session, _: bool) -> Run {
        Err(Stop::error("ERR No failover in progress."))
    }
    fn take_over(&self, _: &mut Session, _: &str) -> Run {
        no_server()
    }
}

impl Host for NoServer {
    fn time_us(&self) -> u64 {
        no_server()
    }
    fn access(&self) -> &dyn Access {
        no_server()
    }
    fn modules_allowed(&self, _: &Session) -> bool {
        false
    }

    fn debug_allowed(&self, _: &Session) -> bool {
        true
    }
    fn save(&self, _: &mut Session) -> Run {
        Ok(())
    }

    fn follow(&self, _: &mut Session, _: Option<(&str, u16)>, _: bool) -> Run {
        Ok(())
    }

    fn followed(&self) -> Option<(String, u16)> {
        None
    }

    fn reload(&self, _: &mut Session, _: bool) -> Run {
        Ok(())
    }

    fn save_in_background(&self, _schedule: bool) -> Result<&'static str, String> {
        Ok("Background saving started")
    }

    fn saves_at_end(&self) -> bool {
        false
    }

    fn save_flushed(&self, _: &mut Session, _: bool) -> Run {
        Ok(())
    }

    fn journaled(&self, _: &Session) -> Option<(u64, bool)> {
        None
    }

    fn rewrite_journal(&self) -> Run {
        Err(Stop::error("ERR BGREWRITEAOF needs a journal: switch it on with CONFIG SET appendonly yes"))
    }

    fn last_save_s(&self) -> u64 {
        0
    }

    fn started_s(&self) -> u64 {
        no_server()
    }
    fn client_list(&self, _: &Session, _: &ClientFilter) -> String {
        no_server()
    }
    fn client_kill(&self, _: &Session, _: &ClientFilter) -> Killed {
        no_server()
    }
    fn client_pause(&self, _: u64, _: Pause) {
        no_server()
    }
    fn client_unblock(&self, _: u64, _: Unblock) -> bool {
        no_server()
    }
    fn client_unpause(&self) {
        no_server()
    }
    fn subscribe(&self, _: &Session, _: Space, _: &[u8]) {
        no_server()
    }
    fn unsubscribe(&self, _: &Session, _: Space, _: &[u8]) {
        no_server()
    }
    fn publish(&self, _: Space, _: &[u8], _: &[u8]) -> usize {
        no_server()
    }
    fn receivers(&self, _: Space, _: &[u8]) -> usize {
        no_server()
    }
    fn message_bytes_max(&self) -> usize {
        usize::MAX
    }

    fn sends_messages_on(&self) -> bool {
        no_server()
    }
    fn topic_names(&self, _: Space, _: Option<&[u8]>) -> Vec<Box<[u8]>> {
        no_server()
    }
    fn topics(&self, _: Space) -> usize {
        no_server()
    }
    fn subscribers(&self, _: Space, _: &[u8]) -> usize {
        no_server()
    }
    fn client_exists(&self, _: u64) -> bool {
        no_server()
    }
    fn tracking_changed(&self, _: &Session) {
        no_server()
    }
    fn redirect_broken(&self, _: &Session) -> bool {
        no_server()
    }
    fn monitors_changed(&self, _: &Session) {
        no_server()
    }
    fn config_get(&self, _: &[&[u8]]) -> Vec<(String, Vec<u8>)> {
        no_server()
    }
    fn config_set(&self, _: &mut Session, _: &[(&[u8], &[u8])], _: bool) -> Run {
        no_server()
    }
    fn config_rewrite(&self, _: &mut Session, _: bool) -> Run {
        no_server()
    }
    fn reset_stats(&self) {
        no_server()
    }
    fn info(&self, _: &[&[u8]]) -> String {
        no_server()
    }
    fn slowlog(&self, _: usize) -> Vec<SlowCommand> {
        no_server()
    }
    fn slowlog_len(&self) -> usize {
        no_server()
    }
    fn slowlog_reset(&self) {
        no_server()
    }
    fn latency_latest(&self) -> Vec<LatencyEvent> {
        no_server()
    }
    fn latency_history(&self, _: &[u8]) -> Vec<(u64, u64)> {
        no_server()
    }
    fn latency_reset(&self, _: &[&[u8]]) -> usize {
        no_server()
    }
    fn latency_histogram(&self, _: &[&[u8]]) -> Vec<CommandLatency> {
        no_server()
    }
    fn memory(&self) -> MemoryFigures {
        no_server()
    }
    fn malloc_report(&self) -> String {
        no_server()
    }
    fn purge_memory(&self) {
        no_server()
    }
    fn shutdown(&self, _: &Session, wanted: Shutdown) -> Result<bool, String> {
        match wanted {
            Shutdown::Abort => Err("ERR No shutdown in progress.".to_owned()),
            Shutdown::Begin { .. } => no_server(),
        }
    }
    fn sleep(&self, _: Duration) {
        no_server()
    }
    fn log(&self, _: &str) {}
    fn sha1(&self, bytes: &[u8]) -> [u8; 20] {
        let hash = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, bytes);
        hash.as_ref().try_into().expect("SHA-1 has 20 bytes")
    }
    fn set_active_expire(&self, _: bool) {
        no_server()
    }
}
