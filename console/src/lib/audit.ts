// Owns the filters of the audit log, and its file. Pure.
import type { AuditEntry } from "./types";

export interface Filters {
  user: string;
  action: string;
  /** done, failed, or empty: both. */
  outcome: string;
  text: string;
}

export function filtered(entries: AuditEntry[], { user, action, outcome, text }: Filters): AuditEntry[] {
  const sought = text.trim().toLowerCase();
  return entries.filter(
    (one) =>
      (!user || one.user === user) &&
      (!action || one.action === action) &&
      (!outcome || one.ok === (outcome === "done")) &&
      (!sought || `${one.target} ${one.detail} ${one.address} ${one.through}`.toLowerCase().includes(sought)),
  );
}

/** A field of a CSV file. A spreadsheet must not take it for a formula. */
const field = (text: string): string => {
  const safe = /^[=+@\t\r-]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};

export function auditCsv(entries: AuditEntry[]): string {
  const rows = entries.map((one) =>
    [new Date(one.at_ms).toISOString(), one.user, one.role, one.address, one.through, one.action, one.target, one.detail, one.ok ? "done" : "failed"].map(field).join(","),
  );
  return ["time,user,role,address,through,action,target,detail,outcome", ...rows, ""].join("\n");
}
