// Made of internal/server/openapi.json by npm run openapi; do not edit.
export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** @description Any JSON. It comes back as it was sent, without the white space outside strings. */
        Value: unknown;
        /** @description Members of the writer's own, up to 64 and 16384 bytes. */
        Meta: Record<string, unknown>;
        /**
         * @description The tier of a job; none is normal.
         * @enum {string}
         */
        Tier: "background" | "bulk" | "low" | "normal" | "high" | "critical";
        /** @enum {string} */
        TopicType: "log" | "queue";
        /**
         * @description At a cap: evict the oldest, or refuse the write.
         * @enum {string}
         */
        Discard: "old" | "reject";
        /**
         * @description When a write is answered: it is in memory, in the log's buffer, with the operating system, or synced.
         * @enum {string}
         */
        Durability: "ephemeral" | "memory" | "disk" | "fsync";
        /** @enum {string} */
        Guarantee: "at_least_once" | "exactly_once";
        /**
         * @description strong: push only what is synced.
         * @enum {string}
         */
        Consistency: "eventual" | "strong";
        /**
         * @description Why records are lost.
         * @enum {string}
         */
        TombstoneReason: "cap" | "ttl" | "mixed" | "recreated" | "source_trim" | "crash" | "from_seq_too_old";
        /** @description A name, or a list of names, 256 KiB in all: records that they wrote are left out. */
        Nodes: string | string[] | null;
        /** @description A tag; a prefix of tags followed by a star; or one of the long forms. */
        Predicate: string | [
            "tag",
            "Eq",
            string
        ] | [
            "tag",
            "Glob",
            string
        ] | null;
        /** @description The lease under which a job was handed out. */
        LeaseID: string;
        /** @description What the call has cost. */
        Performance: {
            server_total_ms: number;
            wal_append_ms?: number;
            claim_wait_ms?: number;
            fsync_ms?: number;
            /** Format: uint64 */
            records_scanned?: number | bigint;
            /** @description Only if the server held the call back. */
            throttle_wait_ms?: number;
        };
        /** @description What a request asked for in vain, though it is answered. */
        Warning: {
            /** @enum {string} */
            code: "unknown_field" | "unknown_parameter" | "idempotency_key_reused";
            /** @description The field with its path, or the parameter. */
            name?: string;
            /** @description The known one that was probably meant. */
            nearest?: string;
            message: string;
        };
        /** @description Omitted fields have their defaults, but for paused. */
        TopicConfig: {
            /** @description Cannot change later. Default: log. */
            type?: components["schemas"]["TopicType"];
            /**
             * Format: uint64
             * @description Age at which records disappear; 0 is never.
             * @default 0
             */
            ttl_ms?: number | bigint;
            /**
             * Format: uint64
             * @description Most live records; 0 is no cap.
             * @default 0
             */
            cap_records?: number | bigint;
            /**
             * Format: uint64
             * @description Most bytes of data and meta; 0 is no cap.
             * @default 0
             */
            cap_bytes?: number | bigint;
            discard?: components["schemas"]["Discard"];
            /**
             * @description true is short for the durability fsync.
             * @default false
             */
            durable?: boolean;
            durability?: components["schemas"]["Durability"] | null;
            /** @description Which topic is pushed first. */
            priority?: number | null;
            /** @default true */
            auto_priority?: boolean;
            /**
             * @description Counts in the config of a write alone: whether the write may create the topic.
             * @default true
             */
            auto_create?: boolean;
            /**
             * Format: uint64
             * @description How long idempotency keys are remembered; 0 is not at all.
             * @default 120000
             */
            idempotency_window_ms?: number | bigint;
            /**
             * @description false: readers also get their own records.
             * @default true
             */
            dedupe_node?: boolean;
            /**
             * Format: uint64
             * @description Moved into 100 to 86400000.
             * @default 30000
             */
            lease_ms?: number | bigint;
            /**
             * Format: uint64
             * @description Up to 5000: gather claims for that long and share jobs out evenly.
             * @default 0
             */
            claim_jitter_ms?: number | bigint;
            /**
             * Format: uint64
             * @description 0 is no limit.
             * @default 0
             */
            max_deliveries?: number | bigint;
            /** @description The topic where a job goes after max_deliveries. */
            dead_letter?: string | null;
            /**
             * @description Leases survive a restart.
             * @default false
             */
            leases_durable?: boolean;
            /**
             * @description Of a queue: how long a job may wait; what its workers cannot do in time is refused.
             * @default 0
             */
            wait_slo_ms?: number;
            /** @description Of a queue: true hands out no job. Left out, it stays as it is. */
            paused?: boolean;
        };
        /** @description The configuration with every field resolved. */
        TopicConfigState: {
            type: components["schemas"]["TopicType"];
            /**
             * Format: uint64
             * @description Age at which records disappear; 0 is never.
             */
            ttl_ms: number | bigint;
            /**
             * Format: uint64
             * @description Most live records; 0 is no cap.
             */
            cap_records: number | bigint;
            /**
             * Format: uint64
             * @description Most bytes of data and meta; 0 is no cap.
             */
            cap_bytes: number | bigint;
            discard: components["schemas"]["Discard"];
            /** @description true is short for the durability fsync. */
            durable: boolean;
            durability: components["schemas"]["Durability"];
            /** @description Which topic is pushed first. */
            priority: number | null;
            auto_priority: boolean;
            /** @description Counts in the config of a write alone: whether the write may create the topic. */
            auto_create: boolean;
            /**
             * Format: uint64
             * @description How long idempotency keys are remembered; 0 is not at all.
             */
            idempotency_window_ms: number | bigint;
            /** @description false: readers also get their own records. */
            dedupe_node: boolean;
            /**
             * Format: uint64
             * @description Moved into 100 to 86400000.
             */
            lease_ms: number | bigint;
            /**
             * Format: uint64
             * @description Up to 5000: gather claims for that long and share jobs out evenly.
             */
            claim_jitter_ms: number | bigint;
            /**
             * Format: uint64
             * @description 0 is no limit.
             */
            max_deliveries: number | bigint;
            /** @description The topic where a job goes after max_deliveries. */
            dead_letter: string | null;
            /** @description Leases survive a restart. */
            leases_durable: boolean;
            /** @description Shown if set. */
            wait_slo_ms?: number;
            /**
             * @description Shown if true.
             * @constant
             */
            paused?: true;
        };
        PutTopicResult: {
            topic: string;
            created: boolean;
            config: components["schemas"]["TopicConfigState"];
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        /** @description What a queue with a wait_slo_ms takes; null where it is not known. */
        Overload: {
            wait_ms: number | null;
            drain_per_second: number | null;
            refused: number;
            lowest_tier: components["schemas"]["Tier"];
        };
        QueueCounters: {
            /** Format: uint64 */
            ready: number | bigint;
            /** Format: uint64 */
            in_flight: number | bigint;
            /** Format: uint64 */
            delayed: number | bigint;
            /** Format: uint64 */
            scheduled: number | bigint;
            /** Format: uint64 */
            dead_lettered: number | bigint;
            overload?: components["schemas"]["Overload"];
        };
        /** @description Counters, configuration and times; queue if it is one. */
        TopicState: {
            topic: string;
            type: components["schemas"]["TopicType"];
            /** Format: uint64 */
            head_seq: number | bigint;
            /** Format: uint64 */
            earliest_seq: number | bigint;
            /** Format: uint64 */
            next_seq: number | bigint;
            /** Format: uint64 */
            count: number | bigint;
            /** Format: uint64 */
            bytes: number | bigint;
            config: components["schemas"]["TopicConfigState"];
            /** Format: int64 */
            effective_priority: number;
            /** Format: int64 */
            last_write_ts: number | null;
            /** Format: int64 */
            last_read_ts: number | null;
            queue?: components["schemas"]["QueueCounters"];
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        TopicEntry: {
            topic: string;
            /**
             * Format: uint64
             * @description The last number given.
             */
            head_seq: number | bigint;
            /**
             * Format: uint64
             * @description The first record that can still be read; head_seq + 1 if there is none.
             */
            earliest_seq: number | bigint;
            /**
             * Format: uint64
             * @description Live records.
             */
            count: number | bigint;
            /**
             * Format: uint64
             * @description Bytes of their data and meta.
             */
            bytes: number | bigint;
            durable: boolean;
            /** Format: int64 */
            effective_priority: number;
        };
        TopicList: {
            topics: components["schemas"]["TopicEntry"][];
            /** @description Only if more follows. */
            next_cursor?: string;
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        DeleteTopicResult: {
            topic: string;
            deleted: boolean;
            routers_removed: string[];
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        PausedResult: {
            topic: string;
            paused: boolean;
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        NewRecord: {
            data: components["schemas"]["Value"];
            /** @description Up to 256 bytes; deletes and routers can select by it. */
            tag?: string | null;
            /** @description Up to 128 bytes: who wrote it. */
            node?: string | null;
            meta?: components["schemas"]["Meta"] | null;
            priority?: components["schemas"]["Tier"] | null;
            /** @description Up to 256 bytes: whom the job is for, such as a tenant. */
            fair_key?: string | null;
            /** @description On a queue: nobody may claim the record earlier than so long after the write. */
            delay_ms?: number;
        };
        Write: {
            records: components["schemas"]["NewRecord"][];
            /** @description The default for the records. */
            node?: string | null;
            /** @description Up to 256 bytes. */
            idempotency_key?: string | null;
            /** @description false: an absent topic is a 404. */
            create?: boolean | null;
            config?: components["schemas"]["TopicConfig"] | null;
            /** @description On overload of the server, wait for room; on that of a queue, be let in before others. */
            disable_backpressure?: boolean;
        };
        WriteResult: {
            topic: string;
            /** Format: uint64 */
            first_seq: number | bigint;
            /** Format: uint64 */
            last_seq: number | bigint;
            /** @description Absent with return_seqs=false. */
            seqs?: (number | bigint)[];
            /** Format: uint64 */
            head_seq: number | bigint;
            /** Format: uint64 */
            count: number | bigint;
            created: boolean;
            deduped: boolean;
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        Writes: {
            writes: components["schemas"]["OneWrite"][];
            /** @description false: an absent topic is an error of each. */
            create?: boolean | null;
            /** @description On overload of the server, wait for room; on that of a queue, be let in before others. */
            disable_backpressure?: boolean;
        };
        OneWrite: {
            records: components["schemas"]["NewRecord"][];
            /** @description The default for the records. */
            node?: string | null;
            /** @description Up to 256 bytes. */
            idempotency_key?: string | null;
        };
        WritesResult: {
            topic: string;
            /** @description In the order of the writes. */
            results: (components["schemas"]["WriteOutcome"] | components["schemas"]["Error"])[];
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        WriteOutcome: {
            /** Format: uint64 */
            first_seq: number | bigint;
            /** Format: uint64 */
            last_seq: number | bigint;
            /** Format: uint64 */
            head_seq: number | bigint;
            /** Format: uint64 */
            count: number | bigint;
            created: boolean;
            deduped: boolean;
        };
        /** @description The answer to lines. */
        LinesResult: {
            topic: string;
            /** Format: uint64 */
            first_seq: number | bigint;
            /**
             * Format: uint64
             * @description Other writers' records may be in between.
             */
            last_seq: number | bigint;
            /** Format: uint64 */
            head_seq: number | bigint;
            /** Format: uint64 */
            count: number | bigint;
            /** Format: uint64 */
            batches: number | bigint;
            created: boolean;
            /** @description All records were there already. */
            deduped: boolean;
            /**
             * Format: uint64
             * @description How many records were there already.
             */
            deduped_count: number | bigint;
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        /** @description An event of CloudEvents 1.0 in structured mode, with up to 64 attributes; null is none. */
        CloudEvent: {
            /** @constant */
            specversion: "1.0";
            id: string;
            source: string;
            type: string;
            subject?: string | null;
            dataschema?: string | null;
            /** Format: date-time */
            time?: string | null;
            /** @description Of the data; none is JSON. */
            datacontenttype?: string | null;
            data?: components["schemas"]["Value"];
            data_base64?: string | null;
        } & {
            [key: string]: string | number | boolean | null;
        };
        Diff: {
            /**
             * Format: uint64
             * @description Records after this one.
             * @default 0
             */
            from_seq?: number | bigint;
            /**
             * @description Up to 1000; 0 is the default.
             * @default 256
             */
            limit?: number;
            node?: components["schemas"]["Nodes"];
            /** @default false */
            include_tags?: boolean;
            /** @default true */
            include_meta?: boolean;
            /**
             * @description CloudEvents have their data all the same.
             * @default true
             */
            include_data?: boolean;
            /**
             * @description Up to 30000: long poll, if there is nothing to return yet.
             * @default 0
             */
            wait_ms?: number;
            /**
             * Format: uint64
             * @description Up to 8 MiB; at least one record is returned.
             * @default 1048576
             */
            max_batch_bytes?: number | bigint;
            /** @description What relays of weir ask for themselves. */
            relay?: boolean;
        };
        /** @description data is absent only without include_data. */
        Record: {
            /** Format: uint64 */
            $seq: number | bigint;
            /**
             * Format: int64
             * @description When it was committed, in ms since 1970.
             */
            $ts: number;
            $node?: string;
            $tag?: string;
            $priority?: components["schemas"]["Tier"];
            $fair_key?: string;
            data?: components["schemas"]["Value"];
            meta?: components["schemas"]["Meta"];
        };
        /** @description A range that is lost. */
        Tombstone: {
            /** Format: uint64 */
            gap_from: number | bigint;
            /** Format: uint64 */
            gap_to: number | bigint;
            reason: components["schemas"]["TombstoneReason"];
            /** Format: uint64 */
            missed_estimate: number | bigint;
            /** Format: uint64 */
            earliest_seq: number | bigint;
            /** Format: uint64 */
            head_seq: number | bigint;
        };
        DiffResult: {
            topic: string;
            records: components["schemas"]["Record"][];
            /**
             * Format: uint64
             * @description The next from_seq.
             */
            next_from_seq: number | bigint;
            /** Format: uint64 */
            head_seq: number | bigint;
            /** Format: uint64 */
            earliest_seq: number | bigint;
            caught_up: boolean;
            tombstone: components["schemas"]["Tombstone"] | null;
            /**
             * Format: uint64
             * @description How many numbers are ahead.
             */
            lag: number | bigint;
            /**
             * Format: uint64
             * @description For relays: of this life of the topic.
             */
            life?: number | bigint;
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        /** @description before_seq, match, or both. */
        Delete: {
            /**
             * Format: uint64
             * @description Records with smaller numbers.
             */
            before_seq?: (number | bigint) | null;
            /**
             * Format: uint64
             * @description Of these, those with this number or a larger one: an extension.
             */
            min_seq?: (number | bigint) | null;
            match?: components["schemas"]["Predicate"];
        } | {
            before_seq: number;
        } | {
            match: string | unknown[];
        };
        DeleteResult: {
            topic: string;
            /** Format: uint64 */
            deleted: number | bigint;
            /** Format: uint64 */
            earliest_seq: number | bigint;
            /** Format: uint64 */
            head_seq: number | bigint;
            /** Format: uint64 */
            count: number | bigint;
            /** Format: uint64 */
            bytes: number | bigint;
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        Claim: {
            /** @description The name of the worker, up to 128 bytes. */
            node: string;
            /**
             * @description Up to 1000.
             * @default 1
             */
            max?: number;
            /**
             * Format: uint64
             * @description Moved into 100 to 86400000; the queue's if left out.
             */
            lease_ms?: (number | bigint) | null;
            /**
             * @description Up to 30000: wait for a job if there is none.
             * @default 0
             */
            wait_ms?: number;
        };
        Job: {
            /** Format: uint64 */
            $seq: number | bigint;
            lease_id: components["schemas"]["LeaseID"];
            /**
             * Format: int64
             * @description When the lease ends, in ms since 1970.
             */
            deadline: number;
            /** Format: int64 */
            $ts: number;
            $tag?: string;
            $priority?: components["schemas"]["Tier"];
            $fair_key?: string;
            /** Format: uint64 */
            deliveries: number | bigint;
            data: components["schemas"]["Value"];
            meta?: components["schemas"]["Meta"];
        };
        ClaimResult: {
            topic: string;
            claimed: components["schemas"]["Job"][];
            /** Format: uint64 */
            count: number | bigint;
            /** Format: uint64 */
            ready: number | bigint;
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        Ack: {
            /** @description The name of the worker, up to 128 bytes. */
            node: string;
            /** @description Numbers of jobs, up to 1000. */
            seqs: (number | bigint)[];
            /** @description One per number; an empty one is not compared. */
            lease_ids?: string[];
        };
        Nack: {
            /** @description The name of the worker, up to 128 bytes. */
            node: string;
            /** @description Numbers of jobs, up to 1000. */
            seqs: (number | bigint)[];
            /** @description One per number; an empty one is not compared. */
            lease_ids?: string[];
            /**
             * Format: uint64
             * @description Up to a day.
             */
            delay_ms?: number | bigint;
            /**
             * @description false lowers the delivery count by one.
             * @default true
             */
            started?: boolean;
        };
        Extend: {
            /** @description The name of the worker, up to 128 bytes. */
            node: string;
            /** @description Numbers of jobs, up to 1000. */
            seqs: (number | bigint)[];
            /** @description One per number; an empty one is not compared. */
            lease_ids?: string[];
            /**
             * Format: uint64
             * @description Counted from now; moved into 100 to 86400000.
             */
            lease_ms: number | bigint;
        };
        AckResult: {
            topic: string;
            /** Format: uint64 */
            acked: number | bigint;
            /** @description Jobs that are not leased to node under that lease. */
            skipped: (number | bigint)[];
            /** Format: uint64 */
            ready: number | bigint;
            /** Format: uint64 */
            in_flight: number | bigint;
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        NackResult: {
            topic: string;
            /** Format: uint64 */
            nacked: number | bigint;
            /** @description Jobs that are not leased to node under that lease. */
            skipped: (number | bigint)[];
            /** Format: uint64 */
            ready: number | bigint;
            /** Format: uint64 */
            in_flight: number | bigint;
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        ExtendResult: {
            topic: string;
            /** Format: uint64 */
            extended: number | bigint;
            /** @description Jobs that are not leased to node under that lease. */
            skipped: (number | bigint)[];
            /** @description By number, in ms since 1970. */
            deadlines: {
                [key: string]: number;
            };
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        Offered: {
            /**
             * @description How many counters there are.
             * @default 1024
             */
            of?: number;
            bins?: number[];
            /** @description add[i] is added to counter bins[i]. */
            add?: number[];
        };
        /** @description The counters that are not 0, and how the queue stands if there is one. */
        OfferedResult: {
            topic: string;
            bins: (number | bigint)[];
            sums: (number | bigint)[];
            /** Format: uint64 */
            head_seq?: number | bigint;
            /** Format: uint64 */
            count?: number | bigint;
            queue?: {
                /** Format: uint64 */
                ready: number | bigint;
                /** Format: uint64 */
                in_flight: number | bigint;
                /** Format: uint64 */
                finished: number | bigint;
                /** Format: uint64 */
                scheduled?: number | bigint;
                /** @constant */
                paused?: true;
            };
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        Router: {
            source: string;
            dest: string;
            filter?: components["schemas"]["Predicate"];
            guarantee?: components["schemas"]["Guarantee"];
            /**
             * @description Keep $node on the copy.
             * @default true
             */
            preserve_node?: boolean;
            /**
             * @description Keep $tag on the copy.
             * @default true
             */
            preserve_tag?: boolean;
            /**
             * @description false: an absent dest is a 404.
             * @default true
             */
            create_dest?: boolean;
            /**
             * @description Routers may feed each other.
             * @default false
             */
            allow_cycle?: boolean;
        };
        PutRouterResult: {
            router: string;
            created: boolean;
            source: string;
            dest: string;
            preserve_node: boolean;
            preserve_tag: boolean;
            filter: components["schemas"]["Predicate"];
            allow_cycle: boolean;
            guarantee: components["schemas"]["Guarantee"];
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        RouterState: {
            router: string;
            source: string;
            dest: string;
            preserve_node: boolean;
            preserve_tag: boolean;
            filter: components["schemas"]["Predicate"];
            allow_cycle: boolean;
            guarantee: components["schemas"]["Guarantee"];
            /**
             * Format: uint64
             * @description Copies made.
             */
            forwarded_total: number | bigint;
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        RouterEntry: {
            router: string;
            source: string;
            dest: string;
            guarantee: components["schemas"]["Guarantee"];
            /** Format: uint64 */
            forwarded_total: number | bigint;
        };
        RouterList: {
            routers: components["schemas"]["RouterEntry"][];
            /** @description Only if more follows. */
            next_cursor?: string;
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        DeleteRouterResult: {
            router: string;
            deleted: boolean;
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        /** @description Omitted fields have their defaults, but for secret. */
        Webhook: {
            /** @description A queue that is there. */
            topic: string;
            /** @description https, without user and fragment, of an address that the server's settings allow. */
            url: string;
            /** @description Signs the deliveries. Left out, it stays, or the server makes one. */
            secret?: string;
            /**
             * @description Deliveries at once.
             * @default 4
             */
            concurrency?: number;
            /**
             * @description Deliveries begun per second; 0 is no limit.
             * @default 0
             */
            rate?: number;
            /**
             * @description Of one delivery.
             * @default 10000
             */
            timeout_ms?: number;
            /** @description Header fields that each delivery has, too: up to 4096 bytes. */
            headers?: {
                [key: string]: string;
            };
        };
        PutWebhookResult: {
            webhook: string;
            topic: string;
            url: string;
            concurrency: number;
            rate: number;
            timeout_ms: number;
            /** @description The names alone. */
            headers: string[];
            created: boolean;
            /** @description Only if the server has made it: shown this once. */
            secret?: string;
            warnings?: components["schemas"]["Warning"][];
        };
        /** @description What it is, and since the start of the server how it goes. */
        WebhookState: {
            webhook: string;
            topic: string;
            url: string;
            concurrency: number;
            rate: number;
            timeout_ms: number;
            /** @description The names alone. */
            headers: string[];
            /** @enum {string} */
            state: "delivering" | "failing" | "off";
            /** Format: uint64 */
            in_flight: number | bigint;
            /**
             * Format: uint64
             * @description Those that succeeded.
             */
            deliveries: number | bigint;
            /** Format: uint64 */
            failures: number | bigint;
            /**
             * Format: uint64
             * @description 0: there was no answer, or no delivery.
             */
            last_status: number | bigint;
            /** @description Of the last failure, until a delivery succeeds. */
            last_error: string;
            /**
             * Format: uint64
             * @description When the last delivery ended, in ms since 1970; 0: there was none.
             */
            last_ts: number | bigint;
            warnings?: components["schemas"]["Warning"][];
        };
        WebhookList: {
            webhooks: components["schemas"]["WebhookState"][];
            /** @description Only if more follows. */
            next_cursor?: string;
            warnings?: components["schemas"]["Warning"][];
        };
        DeleteWebhookResult: {
            webhook: string;
            deleted: boolean;
            warnings?: components["schemas"]["Warning"][];
        };
        WatchStart: {
            /**
             * Format: uint64
             * @default 0
             */
            from_seq?: number | bigint;
            /**
             * @description Begin at the head; from_seq does not count.
             * @default false
             */
            tail?: boolean;
        };
        Watch: {
            /** @description By topic, up to 256, where to begin. */
            topics: {
                [key: string]: components["schemas"]["WatchStart"];
            };
            /**
             * Format: uint64
             * @description Moved into 1000 to 60000.
             * @default 15000
             */
            heartbeat_ms?: number | bigint;
            consistency?: components["schemas"]["Consistency"];
            node?: components["schemas"]["Nodes"];
            /**
             * @description Records per frame, up to 1000.
             * @default 256
             */
            limit?: number;
            /**
             * Format: uint64
             * @description Bytes per frame, up to 8 MiB; at least one record.
             * @default 262144
             */
            max_batch_bytes?: number | bigint;
            /** @default true */
            include_meta?: boolean;
            /** @default false */
            include_tags?: boolean;
            /** @default true */
            include_data?: boolean;
        };
        WatchPosition: {
            /** Format: uint64 */
            from_seq: number | bigint;
            /** Format: uint64 */
            head_seq: number | bigint;
            /** Format: uint64 */
            earliest_seq: number | bigint;
            /**
             * Format: uint64
             * @description For relays.
             */
            life?: number | bigint;
        };
        WatchResult: {
            /** @description The session. */
            wid?: string;
            /** @description Where its stream is. */
            stream_url?: string;
            /** Format: uint64 */
            session_ttl_ms?: number | bigint;
            /** @description For relays, which keep sessions themselves: the call had a key that counted. */
            keyed?: boolean;
            topics: {
                [key: string]: components["schemas"]["WatchPosition"];
            };
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        RecordEvent: {
            topic: string;
            /**
             * Format: uint64
             * @description The cursor in front of the records.
             */
            from_seq: number | bigint;
            /** Format: uint64 */
            head_seq: number | bigint;
            records: components["schemas"]["Record"][];
            /**
             * Format: uint64
             * @description The last number examined.
             */
            to_seq: number | bigint;
        };
        TombstoneEvent: {
            topic: string;
            reason: components["schemas"]["TombstoneReason"];
            /** Format: uint64 */
            gap_from: number | bigint;
            /** Format: uint64 */
            gap_to: number | bigint;
            /** Format: uint64 */
            earliest_seq: number | bigint;
            /** Format: uint64 */
            head_seq: number | bigint;
        };
        CaughtUpEvent: {
            topic: string;
            /** Format: uint64 */
            head_seq: number | bigint;
        };
        TopicDeletedEvent: {
            topic: string;
            /**
             * Format: uint64
             * @description 0 if it is not known.
             */
            head_seq: number | bigint;
            /** @constant */
            reason: "deleted";
        };
        StreamError: {
            /**
             * @description 409: the queue of a work stream is gone. 410: the watch session is gone. 429: pushes of topics are delayed, and the stream goes on. The others end it. Bear with others.
             * @enum {unknown}
             */
            code: 409 | 410 | 429 | "server_shutting_down";
            error: string;
            message?: string;
            /** Format: uint64 */
            retry_after_ms?: number | bigint;
            topics?: string[];
            topic?: string;
        };
        JobEvent: {
            topic: string;
            /** Format: uint64 */
            $seq: number | bigint;
            lease_id: components["schemas"]["LeaseID"];
            /**
             * Format: int64
             * @description When the lease ends, in ms since 1970.
             */
            deadline: number;
            /** Format: int64 */
            $ts: number;
            $tag?: string;
            $priority?: components["schemas"]["Tier"];
            $fair_key?: string;
            /** Format: uint64 */
            deliveries: number | bigint;
            data: components["schemas"]["Value"];
            meta?: components["schemas"]["Meta"];
        };
        /** @description topic, topics, or both. */
        Subscribe: {
            /** @constant */
            op: "subscribe";
            /** @description Any JSON; the answer has it, too. */
            request_id?: unknown;
            topic?: string | null;
            /** @description By topic, up to 256, where to begin. */
            topics?: {
                [key: string]: components["schemas"]["WatchStart"];
            };
            /**
             * Format: uint64
             * @default 0
             */
            from_seq?: number | bigint;
            /** @default false */
            tail?: boolean;
            /**
             * @description Unknown topics are left out.
             * @default false
             */
            lenient?: boolean;
            /** @description What relays of weir ask for themselves. */
            relay?: boolean;
            node?: components["schemas"]["Nodes"];
            /**
             * @description Records per frame, up to 1000.
             * @default 1000
             */
            limit?: number;
            /**
             * Format: uint64
             * @description Bytes per frame, up to 8 MiB; at least one record.
             * @default 1048576
             */
            max_batch_bytes?: number | bigint;
            /** @default true */
            include_meta?: boolean;
            /** @default false */
            include_tags?: boolean;
            /** @default true */
            include_data?: boolean;
        } | {
            topic: string;
        } | {
            topics: unknown;
        };
        /** @description topic, topics, or both. */
        Unsubscribe: {
            /** @constant */
            op: "unsubscribe";
            /** @description Any JSON; the answer has it, too. */
            request_id?: unknown;
            topic?: string | null;
            topics?: string[];
        } | {
            topic: string;
        } | {
            topics: unknown;
        };
        Publish: {
            /** @constant */
            op: "publish";
            /** @description Any JSON; the answer has it, too. */
            request_id?: unknown;
            topic: string;
            /** @default true */
            return_seqs?: boolean;
            records: components["schemas"]["NewRecord"][];
            /** @description The default for the records. */
            node?: string | null;
            /** @description Up to 256 bytes. */
            idempotency_key?: string | null;
            /** @description false: an absent topic is a 404. */
            create?: boolean | null;
            config?: components["schemas"]["TopicConfig"] | null;
            /** @description On overload of the server, wait for room; on that of a queue, be let in before others. */
            disable_backpressure?: boolean;
        };
        Ping: {
            /** @constant */
            op: "ping";
            /** @description Any JSON; the answer has it, too. */
            request_id?: unknown;
        };
        Subscribed: {
            /** @constant */
            op: "subscribed";
            request_id: unknown;
            topics: {
                [key: string]: components["schemas"]["WatchPosition"];
            };
            warnings?: components["schemas"]["Warning"][];
        };
        Unsubscribed: {
            /** @constant */
            op: "unsubscribed";
            request_id: unknown;
            topics: string[];
            warnings?: components["schemas"]["Warning"][];
        };
        PublishAck: {
            /** @constant */
            op: "ack";
            request_id: unknown;
            topic: string;
            /** Format: uint64 */
            first_seq: number | bigint;
            /** Format: uint64 */
            last_seq: number | bigint;
            /** @description null with return_seqs false. */
            seqs: (number | bigint)[] | null;
            /** Format: uint64 */
            head_seq: number | bigint;
            /** Format: uint64 */
            count: number | bigint;
            created: boolean;
            deduped: boolean;
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        Pong: {
            /** @constant */
            op: "pong";
            request_id: unknown;
            warnings?: components["schemas"]["Warning"][];
        };
        SocketClaim: {
            /** @constant */
            op: "claim";
            /** @description Any JSON; the answer has it, too. */
            request_id?: unknown;
            /** @description The queue. */
            topic: string;
            /** @description The name of the worker, up to 128 bytes. */
            node: string;
            /**
             * @description Up to 1000.
             * @default 1
             */
            max?: number;
            /**
             * Format: uint64
             * @description Moved into 100 to 86400000; the queue's if left out.
             */
            lease_ms?: (number | bigint) | null;
            /**
             * @description Up to 30000: wait for a job if there is none, beside the messages that follow; 16 may wait.
             * @default 0
             */
            wait_ms?: number;
        };
        SocketAck: {
            /** @constant */
            op: "ack";
            /** @description Any JSON; the answer has it, too. */
            request_id?: unknown;
            /** @description The queue. */
            topic: string;
            /** @description The name of the worker, up to 128 bytes. */
            node: string;
            /** @description Numbers of jobs, up to 1000. */
            seqs: (number | bigint)[];
            /** @description One per number; an empty one is not compared. */
            lease_ids?: string[];
        };
        SocketNack: {
            /** @constant */
            op: "nack";
            /** @description Any JSON; the answer has it, too. */
            request_id?: unknown;
            /** @description The queue. */
            topic: string;
            /** @description The name of the worker, up to 128 bytes. */
            node: string;
            /** @description Numbers of jobs, up to 1000. */
            seqs: (number | bigint)[];
            /** @description One per number; an empty one is not compared. */
            lease_ids?: string[];
            /**
             * Format: uint64
             * @description Up to a day.
             */
            delay_ms?: number | bigint;
            /**
             * @description false lowers the delivery count by one.
             * @default true
             */
            started?: boolean;
        };
        SocketExtend: {
            /** @constant */
            op: "extend";
            /** @description Any JSON; the answer has it, too. */
            request_id?: unknown;
            /** @description The queue. */
            topic: string;
            /** @description The name of the worker, up to 128 bytes. */
            node: string;
            /** @description Numbers of jobs, up to 1000. */
            seqs: (number | bigint)[];
            /** @description One per number; an empty one is not compared. */
            lease_ids?: string[];
            /**
             * Format: uint64
             * @description Counted from now; moved into 100 to 86400000.
             */
            lease_ms: number | bigint;
        };
        SocketClaimed: {
            /** @constant */
            op: "claimed";
            request_id: unknown;
            topic: string;
            claimed: components["schemas"]["Job"][];
            /** Format: uint64 */
            count: number | bigint;
            /** Format: uint64 */
            ready: number | bigint;
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        SocketAcked: {
            /** @constant */
            op: "acked";
            request_id: unknown;
            topic: string;
            /** Format: uint64 */
            acked: number | bigint;
            /** @description Jobs that are not leased to node under that lease. */
            skipped: (number | bigint)[];
            /** Format: uint64 */
            ready: number | bigint;
            /** Format: uint64 */
            in_flight: number | bigint;
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        SocketNacked: {
            /** @constant */
            op: "nacked";
            request_id: unknown;
            topic: string;
            /** Format: uint64 */
            nacked: number | bigint;
            /** @description Jobs that are not leased to node under that lease. */
            skipped: (number | bigint)[];
            /** Format: uint64 */
            ready: number | bigint;
            /** Format: uint64 */
            in_flight: number | bigint;
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        SocketExtended: {
            /** @constant */
            op: "extended";
            request_id: unknown;
            topic: string;
            /** Format: uint64 */
            extended: number | bigint;
            /** @description Jobs that are not leased to node under that lease. */
            skipped: (number | bigint)[];
            /** @description By number, in ms since 1970. */
            deadlines: {
                [key: string]: number;
            };
            performance: components["schemas"]["Performance"];
            warnings?: components["schemas"]["Warning"][];
        };
        SocketRecord: {
            /** @constant */
            op: "record";
            topic: string;
            /**
             * Format: uint64
             * @description The cursor in front of the records.
             */
            from_seq: number | bigint;
            /** Format: uint64 */
            head_seq: number | bigint;
            records: components["schemas"]["Record"][];
            /**
             * Format: uint64
             * @description The last number examined.
             */
            to_seq: number | bigint;
            /**
             * @description For relays: node filters do not count for the topic.
             * @constant
             */
            dedupe_node?: false;
        };
        SocketTombstone: {
            /** @constant */
            op: "tombstone";
            topic: string;
            reason: components["schemas"]["TombstoneReason"];
            /** Format: uint64 */
            gap_from: number | bigint;
            /** Format: uint64 */
            gap_to: number | bigint;
            /** Format: uint64 */
            earliest_seq: number | bigint;
            /** Format: uint64 */
            head_seq: number | bigint;
        };
        SocketCaughtUp: {
            /** @constant */
            op: "caught_up";
            topic: string;
            /** Format: uint64 */
            head_seq: number | bigint;
        };
        SocketTopicDeleted: {
            /** @constant */
            op: "topic_deleted";
            topic: string;
            /**
             * Format: uint64
             * @description 0 if it is not known.
             */
            head_seq: number | bigint;
            /** @constant */
            reason: "deleted";
        };
        /** @enum {string} */
        ErrorCode: "invalid_request" | "batch_too_large" | "record_too_large" | "unauthorized" | "forbidden" | "topic_not_found" | "router_not_found" | "not_found" | "method_not_allowed" | "not_acceptable" | "topic_exists_incompatible" | "topic_not_empty" | "router_cycle" | "not_a_queue" | "idempotency_key_reused" | "payload_too_large" | "unsupported_media_type" | "topic_full" | "throttled" | "internal" | "not_ready" | "shutting_down" | "disk_full";
        /** @description What a program may need to know; which members there are depends on the code. */
        ErrorDetail: {
            topic?: string;
            router?: string;
            source?: string;
            dest?: string;
            /** Format: uint64 */
            count?: number | bigint;
            /**
             * Format: uint64
             * @description How many were sent.
             */
            seqs?: number | bigint;
            /**
             * Format: uint64
             * @description Of a cap, or of what one call takes.
             */
            max?: number | bigint;
            /** @description The cap that is reached. */
            limit?: string;
            /** @description load_shedding: a queue refuses what its workers cannot do in time. On 409: the rule that a router breaks. */
            reason?: string;
            /**
             * Format: uint64
             * @description When to try again.
             */
            retry_after_ms?: number | bigint;
            /** Format: uint64 */
            cap_records?: number | bigint;
            /** Format: uint64 */
            cap_bytes?: number | bigint;
            /** Format: uint64 */
            head_seq?: number | bigint;
            /** Format: uint64 */
            earliest_seq?: number | bigint;
            existing_type?: components["schemas"]["TopicType"];
            requested_type?: components["schemas"]["TopicType"];
            existing_source?: string;
            existing_dest?: string;
            cycle?: string[];
            dead_letter?: string;
            /**
             * Format: uint64
             * @description Of a delete in several steps that failed: how many so far.
             */
            deleted?: number | bigint;
            /** @description With strict: the warning's code. */
            warning?: string;
            /** @description With strict: the field or parameter. */
            name?: string;
            nearest?: string;
            /** Format: int64 */
            free_bytes?: number;
            /** Format: int64 */
            reserve_bytes?: number;
            /** Format: int64 */
            free_files?: number;
            /** Format: int64 */
            reserve_files?: number;
            replay_progress?: number;
            role?: string;
            upstream?: string;
            webhook?: string;
            /**
             * Format: uint64
             * @description Of the record that is not there.
             */
            seq?: number | bigint;
            /**
             * Format: uint64
             * @description Of lines: the one that is bad.
             */
            line?: number | bigint;
            /**
             * Format: uint64
             * @description Of lines: how many records.
             */
            stored?: number | bigint;
            /**
             * Format: uint64
             * @description Of lines: up to which they are stored.
             */
            stored_lines?: number | bigint;
            /**
             * Format: uint64
             * @description Of lines: the first record stored.
             */
            first_seq?: number | bigint;
            /**
             * Format: uint64
             * @description Of lines: the last record stored.
             */
            last_seq?: number | bigint;
            storage?: {
                operation: string;
                error: string;
                /** Format: int64 */
                errno?: number;
            };
        };
        Error: {
            error: {
                code: components["schemas"]["ErrorCode"];
                /** @description For people; it names the field and the fix. */
                message: string;
                detail?: components["schemas"]["ErrorDetail"];
            };
        };
        SocketError: {
            /** @constant */
            op: "error";
            request_id: unknown;
            /**
             * @description One of the codes of HTTP, or one of three of sockets.
             * @enum {string}
             */
            code: "invalid_request" | "batch_too_large" | "record_too_large" | "unauthorized" | "forbidden" | "topic_not_found" | "router_not_found" | "not_found" | "method_not_allowed" | "not_acceptable" | "topic_exists_incompatible" | "topic_not_empty" | "router_cycle" | "not_a_queue" | "idempotency_key_reused" | "payload_too_large" | "unsupported_media_type" | "topic_full" | "throttled" | "internal" | "not_ready" | "shutting_down" | "disk_full" | "invalid_json" | "unsupported_message" | "server_shutting_down";
            message: string;
            detail?: components["schemas"]["ErrorDetail"];
        };
        /** @description What a client sends. */
        SocketRequest: components["schemas"]["Subscribe"] | components["schemas"]["Unsubscribe"] | components["schemas"]["Publish"] | components["schemas"]["SocketClaim"] | components["schemas"]["SocketAck"] | components["schemas"]["SocketNack"] | components["schemas"]["SocketExtend"] | components["schemas"]["Ping"];
        /** @description What the server sends: one answer to each message in its order, but for claims that wait, and what is pushed. */
        SocketMessage: components["schemas"]["Subscribed"] | components["schemas"]["Unsubscribed"] | components["schemas"]["PublishAck"] | components["schemas"]["SocketClaimed"] | components["schemas"]["SocketAcked"] | components["schemas"]["SocketNacked"] | components["schemas"]["SocketExtended"] | components["schemas"]["Pong"] | components["schemas"]["SocketError"] | components["schemas"]["SocketRecord"] | components["schemas"]["SocketTombstone"] | components["schemas"]["SocketCaughtUp"] | components["schemas"]["SocketTopicDeleted"];
        /** @description topics and prefixes together have 1 to 64 names. */
        Token: {
            /** @description Names of topics. */
            topics?: string[];
            /** @description Beginnings of names of topics. */
            prefixes?: string[];
            /**
             * Format: uint64
             * @description Moved into 1000 to 86400000.
             * @default 600000
             */
            ttl_ms?: number | bigint;
        } | {
            topics: unknown;
        } | {
            prefixes: unknown;
        };
        TokenResult: {
            /** @description Stands for a key where one is taken from the query, and in the header. */
            token: string;
            /**
             * Format: int64
             * @description When it ends, in ms since 1970.
             */
            expires_ts: number;
            warnings?: components["schemas"]["Warning"][];
        };
        Health: {
            /** @constant */
            status: "ok";
            version: string;
            /** Format: uint64 */
            uptime_ms: number | bigint;
            /** @description The server is a relay. */
            relay?: {
                upstream: string;
                connected: boolean;
            };
            warnings?: components["schemas"]["Warning"][];
        };
        Ready: {
            /** @constant */
            status: "ready";
            wal_replay_complete: boolean;
            /** Format: uint64 */
            topics: number | bigint;
            /**
             * @description Shown while writes are refused.
             * @constant
             */
            writable?: false;
            /** @description Why they are. */
            reason?: string;
            replica?: {
                role: string;
                /** Format: uint64 */
                term: number | bigint;
                /** Format: int64 */
                lag_ms: number;
            };
            /** @description The server is a relay. */
            relay?: {
                upstream: string;
                connected: boolean;
            };
            warnings?: components["schemas"]["Warning"][];
        };
        Metrics: {
            /** Format: uint64 */
            topics: number | bigint;
            /** Format: uint64 */
            topics_ephemeral: number | bigint;
            /** Format: uint64 */
            topics_memory: number | bigint;
            /** Format: uint64 */
            topics_disk: number | bigint;
            /** Format: uint64 */
            topics_fsync: number | bigint;
            /** Format: uint64 */
            routers: number | bigint;
            /** Format: uint64 */
            routers_stopped: number | bigint;
            /** Format: uint64 */
            records_live: number | bigint;
            /** Format: uint64 */
            bytes_live: number | bigint;
            /** Format: uint64 */
            idempotency_keys: number | bigint;
            /** Format: uint64 */
            queue_topics: number | bigint;
            /** Format: uint64 */
            queue_leases_in_flight: number | bigint;
            /** Format: uint64 */
            sse_connections: number | bigint;
            /** Format: uint64 */
            watch_sessions: number | bigint;
            ready: boolean;
            replay_progress: number;
            /** Format: uint64 */
            disk_free_bytes?: number | bigint;
            /** Format: uint64 */
            disk_reserve_bytes: number | bigint;
            writable: boolean;
            /** Format: uint64 */
            uptime_ms: number | bigint;
            wal: {
                /** Format: uint64 */
                fsyncs: number | bigint;
                /** Format: uint64 */
                frames: number | bigint;
                /** Format: uint64 */
                batches: number | bigint;
                /** Format: uint64 */
                bytes_written: number | bigint;
                /** Format: uint64 */
                rotations: number | bigint;
                /** Format: uint64 */
                queue_depth: number | bigint;
                /** Format: uint64 */
                queue_depth_peak: number | bigint;
                /** Format: uint64 */
                submit_full_total: number | bigint;
                read_only: boolean;
                /** Format: uint64 */
                fsync_count: number | bigint;
                /** Format: uint64 */
                fsync_micros_total: number | bigint;
            };
            warnings?: components["schemas"]["Warning"][];
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
