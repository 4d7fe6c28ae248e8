// Owns what the API takes of a rule that it has told. Pure.
import type { NewRule, Rule } from "./types";

/** The rule's path has its id, which a body with it would be refused for. */
export function switched({ id: _id, ...rule }: Rule): NewRule {
  return { ...rule, enabled: !rule.enabled };
}
