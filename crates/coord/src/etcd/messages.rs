//! Owns the messages of etcd's API, version 3: their fields, with the numbers of etcd's rpc.proto and kv.proto. Never knows why one
//! is sent.
//!
//! Only the calls and fields that we use: protobuf skips unknown fields of an answer, and a missing field has its default. etcd never
//! gives a number to another field, so nothing here has to follow its releases. Written by hand, a build needs neither protoc nor a
//! code generator.

use prost::Message;

/// A call's path and the type of its answer.
pub trait Call: Message + Clone + Default + 'static {
    const PATH: &'static str;
    /// A member that knows no leader refuses it: its answer could be old, and a watch would stay silent.
    const WANTS_LEADER: bool;
    type Answer: Message + Default + 'static;
}

macro_rules! calls {
    ($wants_leader:literal: $($request:ident => $answer:ident: $path:literal),* $(,)?) => {
        $(impl Call for $request {
            const PATH: &'static str = $path;
            const WANTS_LEADER: bool = $wants_leader;
            type Answer = $answer;
        })*
    };
}

calls! { true:
    RangeRequest => RangeResponse: "/etcdserverpb.KV/Range",
    TxnRequest => TxnResponse: "/etcdserverpb.KV/Txn",
    CompactionRequest => HeaderOnly: "/etcdserverpb.KV/Compact",
    WatchRequest => WatchResponse: "/etcdserverpb.Watch/Watch",
    LeaseGrantRequest => LeaseGrantResponse: "/etcdserverpb.Lease/LeaseGrant",
    LeaseRevokeRequest => HeaderOnly: "/etcdserverpb.Lease/LeaseRevoke",
    LeaseKeepAliveRequest => LeaseKeepAliveResponse: "/etcdserverpb.Lease/LeaseKeepAlive",
    AuthenticateRequest => AuthenticateResponse: "/etcdserverpb.Auth/Authenticate",
    MemberListRequest => MemberListResponse: "/etcdserverpb.Cluster/MemberList",
    MemberAddRequest => MemberAddResponse: "/etcdserverpb.Cluster/MemberAdd",
    MemberPromoteRequest => HeaderOnly: "/etcdserverpb.Cluster/MemberPromote",
    MemberRemoveRequest => HeaderOnly: "/etcdserverpb.Cluster/MemberRemove",
    AlarmRequest => AlarmResponse: "/etcdserverpb.Maintenance/Alarm",
    DefragmentRequest => HeaderOnly: "/etcdserverpb.Maintenance/Defragment",
    MoveLeaderRequest => HeaderOnly: "/etcdserverpb.Maintenance/MoveLeader",
    SnapshotRequest => SnapshotResponse: "/etcdserverpb.Maintenance/Snapshot",
}

calls! { false:
    KnownMembersRequest => MemberListResponse: "/etcdserverpb.Cluster/MemberList",
    StatusRequest => StatusResponse: "/etcdserverpb.Maintenance/Status",
}

#[derive(Clone, PartialEq, Message)]
pub struct Header {
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    #[prost(int64, tag = "3")]
    pub revision: i64,
}

/// Several answers have only a header.
#[derive(Clone, PartialEq, Message)]
pub struct HeaderOnly {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub lease: i64,
}

/// `sort_order`: largest first.
pub const DESCEND: i32 = 2;
/// `sort_target`: by `mod_revision`.
pub const BY_MOD_REVISION: i32 = 3;

#[derive(Clone, PartialEq, Message)]
pub struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// Not included. Empty: only `key`.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub limit: i64,
    #[prost(int32, tag = "5")]
    pub sort_order: i32,
    #[prost(int32, tag = "6")]
    pub sort_target: i32,
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
    /// Of all keys of the range, whatever the limit is.
    #[prost(int64, tag = "4")]
    pub count: i64,
}

/// `target` of a comparison. Its `result` 0 means equal.
pub const MOD_REVISION: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub struct Compare {
    #[prost(int32, tag = "2")]
    pub target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub key: Vec<u8>,
    #[prost(int64, optional, tag = "6")]
    pub mod_revision: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
}

/// One of the two.
#[derive(Clone, PartialEq, Message)]
pub struct RequestOp {
    #[prost(message, optional, tag = "2")]
    pub put: Option<PutRequest>,
    #[prost(message, optional, tag = "3")]
    pub delete: Option<DeleteRangeRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct CompactionRequest {
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Answered when the changes are gone from the database, so that a defragmentation gives their space back.
    #[prost(bool, tag = "2")]
    pub physical: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
}

/// `kind` of an event; 0 is a put.
pub const DELETE: i32 = 1;

#[derive(Clone, PartialEq, Message)]
pub struct WatchEvent {
    #[prost(int32, tag = "1")]
    pub kind: i32,
    /// Of a deleted key only the key and the revision of the deletion.
    #[prost(message, optional, tag = "2")]
    pub kv: Option<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct WatchResponse {
    #[prost(bool, tag = "3")]
    pub created: bool,
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    #[prost(string, tag = "6")]
    pub cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<WatchEvent>,
}

#[derive(Clone, PartialEq, Message)]
pub struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub ttl_seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub id: i64,
    #[prost(int64, tag = "3")]
    pub ttl_seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    pub id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct LeaseKeepAliveResponse {
    /// 0: there is no such lease.
    #[prost(int64, tag = "3")]
    pub ttl_seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub token: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Member {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, repeated, tag = "3")]
    pub peer_urls: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub client_urls: Vec<String>,
    #[prost(bool, tag = "5")]
    pub is_learner: bool,
}

/// A MemberListRequest to a member that may know no leader.
#[derive(Clone, PartialEq, Message)]
pub struct KnownMembersRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct MemberListRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct MemberListResponse {
    #[prost(message, repeated, tag = "2")]
    pub members: Vec<Member>,
}

#[derive(Clone, PartialEq, Message)]
pub struct MemberAddRequest {
    #[prost(string, repeated, tag = "1")]
    pub peer_urls: Vec<String>,
    #[prost(bool, tag = "2")]
    pub is_learner: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct MemberAddResponse {
    #[prost(message, optional, tag = "2")]
    pub member: Option<Member>,
}

#[derive(Clone, PartialEq, Message)]
pub struct MemberPromoteRequest {
    #[prost(uint64, tag = "1")]
    pub id: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct MemberRemoveRequest {
    #[prost(uint64, tag = "1")]
    pub id: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(int64, tag = "3")]
    pub db_bytes: i64,
    #[prost(uint64, tag = "4")]
    pub leader: u64,
    #[prost(int64, tag = "9")]
    pub db_bytes_in_use: i64,
}

/// `action` of an alarm request; 0 asks for the alarms.
pub const DEACTIVATE: i32 = 2;
pub const NO_SPACE: i32 = 1;
pub const CORRUPT: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub struct AlarmRequest {
    #[prost(int32, tag = "1")]
    pub action: i32,
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    #[prost(int32, tag = "3")]
    pub alarm: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct AlarmMember {
    #[prost(uint64, tag = "1")]
    pub member_id: u64,
    #[prost(int32, tag = "2")]
    pub alarm: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct AlarmResponse {
    #[prost(message, repeated, tag = "2")]
    pub alarms: Vec<AlarmMember>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DefragmentRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct MoveLeaderRequest {
    #[prost(uint64, tag = "1")]
    pub target_id: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct SnapshotRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct SnapshotResponse {
    #[prost(uint64, tag = "2")]
    pub remaining_bytes: u64,
    #[prost(bytes = "vec", tag = "3")]
    pub blob: Vec<u8>,
}
