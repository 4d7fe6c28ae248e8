// The console's names for the types of the HTTP API, which schema.ts has. Bytes are integers, times are ms since 1970.

import type * as api from "./schema";

export type {
  Benchmark, Bytes, Codec, Db, Directive, Event, KeyPage, KeyView, NewRule, Policy, Reply, Role, Rule, Scenario, Series, Severity, Webhook,
} from "./schema";

export type Condition = api.Condition;
export type Filling = api.Filling;
export type Backups = api.Backups;
export type AllBackups = api.AllBackups;
export type Backup = api.BackupInfo;
export type RunningBackup = api.RunningInfo;
export type Session = api.SessionInfo;
export type Room = api.RoomInfo;
export type NodeFigures = api.NodeFiguresInfo;
export type NodeInfo = api.NodeInfo;
export type Definition = api.DefinitionInfo;
export type DbState = api.StateName;
export type CreateDb = api.NewDatabase;
export type Metric = api.MetricInfo;
export type SlowEntry = api.SlowCommand;
export type Client = api.ClientInfo;
export type KeyRow = api.KeyInfo;
export type CommandResult = api.CommandOutcome;
export type Transaction = api.Transaction;
export type StreamPage = api.StreamPage;
export type StreamRow = api.StreamRow;
export type LatencyHistory = api.LatencyHistory;
export type LatencyEvent = api.LatencyEvent;
export type CommandDoc = api.CommandInfo;
export type AlertWord = api.Stand;
export type AlertState = api.RuleState;
export type Replication = api.Replication;
export type Alerts = api.All;
export type ClusterAlerts = api.ClusterAlerts;
export type ClusterEvents = api.ClusterEvents;
export type NodeEvent = api.NodeEvent;
export type MissingNode = api.MissingNode;
export type ForgetPlan = api.ForgetPlan;
export type AuditEntry = api.Audited;
export type User = api.UserInfo;
export type Token = api.TokenInfo;
export type Deleted = api.Deleted;
export type Exported = api.Exported;
export type Dumped = api.Dumped;
export type Imported = api.Imported;
export type Analysis = api.Analysis;
export type KeyGroup = api.KeyGroup;
export type FreshToken = api.MadeToken;
export type Cluster = api.ClusterInfo;
export type ClusterNode = api.ClusterNode;
export type ClusterDatabase = api.ClusterDatabase;
export type ShardFigures = api.ShardFigures;
export type ShardInfo = api.ShardInfo;
export type Etcd = api.ClusterEtcd;
export type EtcdMember = api.ClusterEtcdMember;
export type JoinToken = api.JoinToken;

export type Placement = api.PlacementInfo;
export type Operation = api.Operation;
export type OperationStep = api.OperationStep;
export type BegunOperation = api.BegunOperation;
export type ClusterSettings = api.ClusterSettings;
export type Failover = api.Failover;
export type CopyInfo = api.CopyInfo;

/** The latest value of each metric; null or missing if there is none yet. */
export type Now = Record<string, number | null | undefined>;

export type StreamEntry = [string, [Bytes, Bytes][]];

type Bytes = api.Bytes;
export type NodePlan = api.NodePlan;
export type Sizing = api.SizingInfo;
export type Survey = api.SurveyInfo;
