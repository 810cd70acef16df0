/** The client of weir, a durable stream queue. Begin with {@link Client}. */
export { Client } from "./client.js";
export { WeirError } from "./errors.js";
export { parse as parseJSON, stringify as stringifyJSON, type Integer } from "./json.js";
export type { CallOptions, ClientOptions } from "./transport.js";
export type { FollowEvent, FollowOptions, FollowTopics } from "./follow.js";
export type { Handler, JobContext, WorkOptions, WorkSummary } from "./work.js";
export type * from "./types.js";
