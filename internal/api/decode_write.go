package api

const (
	acceptString       = "a string"
	acceptStringOrNull = "a string or null"
)

// Bits of the known fields of a write, and of one record.
const (
	writeRecords = 1 << iota
	writeNode
	writeKey
	writeCreate
	writeConfig
	writeBackpressure
)

const (
	recordData = 1 << iota
	recordTag
	recordNode
	recordMeta
	recordPriority
	recordFairKey
	recordDelay
)

var (
	writeFields  = []string{"records", "node", "idempotency_key", "create", "config", "disable_backpressure"}
	recordFields = []string{"data", "tag", "node", "meta", "priority", "fair_key", "delay_ms"}
)

// DecodeWrite reads the body of a write into w, which it resets first. It makes the
// checks of contract 2 and no others; see CheckWrite. The records point into body,
// where user JSON is compacted in place: body keeps its meaning but not its bytes. Of a
// batch that is too large it keeps one record more than lim allows and checks the
// others.
func DecodeWrite(body []byte, lim *Limits, w *WriteRequest, warn *Warnings) error {
	if err := readWrite(body, lim, w, writeFields, warn); err != nil {
		return err
	}
	return nil
}

func readWrite(body []byte, lim *Limits, w *WriteRequest, known []string, warn *Warnings) *Error {
	w.Reset()
	s := scanner{b: body, index: -1, scratch: w.scratch, warnings: warn}
	s.write(lim.MaxBatchRecords, w, known, true)
	s.end()
	w.scratch = s.scratch
	if s.err != nil {
		return s.err
	}
	return nil
}

// write reads a write of which it keeps one record more than most; only a whole one says
// how its topic is to be made and whether it waits.
func (s *scanner) write(most int, w *WriteRequest, known []string, whole bool) {
	if s.peek(); !s.open('{') {
		s.notObject()
		return
	}
	var seen uint32
	for {
		name, ok := s.member()
		if !ok {
			break
		}
		switch string(name) {
		case "records":
			if s.once(&seen, writeRecords, "records") {
				s.records(most, w)
			}
		case "node":
			if s.once(&seen, writeNode, "node") && !s.null() {
				w.Node = s.text("node", acceptStringOrNull)
			}
		case "idempotency_key":
			if s.once(&seen, writeKey, "idempotency_key") && !s.null() {
				w.IdempotencyKey = s.text("idempotency_key", acceptStringOrNull)
				w.HasIdempotencyKey = true
			}
		case "create":
			if s.beside(whole, "create") && s.once(&seen, writeCreate, "create") && !s.null() {
				w.create = s.bool("create")
				w.Create = &w.create
			}
		case "config":
			if s.beside(whole, "config") && s.once(&seen, writeConfig, "config") && !s.null() {
				s.prefix = "config."
				if w.config, ok = s.config(); !ok {
					s.prefix = ""
					s.wrong("config", "an object or null")
				}
				s.prefix = ""
				w.Config = &w.config
			}
		case "disable_backpressure":
			if s.beside(whole, "disable_backpressure") && s.once(&seen, writeBackpressure, "disable_backpressure") {
				w.DisableBackpressure = s.bool("disable_backpressure")
			}
		default:
			s.stray(name, known)
			s.skip()
		}
	}
	if seen&writeRecords == 0 {
		s.missing("records", "an array of records")
	}
	if w.Node == nil {
		return
	}
	for i := range w.Records {
		if r := &w.Records[i]; !r.HasNode {
			r.Node, r.HasNode = w.Node, true
		}
	}
}

// beside refuses a field that one of many writes has not.
func (s *scanner) beside(whole bool, name string) bool {
	if !whole && s.err == nil {
		s.err = Errorf(CodeInvalidRequest, "field %q is not one of a single write; %s (at byte %d)", s.field(name), besideWrites[name], s.i)
	}
	return s.err == nil
}

var besideWrites = map[string]string{
	"create":               "put \"create\" beside \"writes\", where it counts for all",
	"config":               "create the topic first, with PUT or with a write that has \"config\"",
	"disable_backpressure": "put \"disable_backpressure\" beside \"writes\", where it counts for all",
}

func (s *scanner) records(most int, w *WriteRequest) {
	if !s.open('[') {
		s.wrong("records", "an array of records")
		return
	}
	for s.index = 0; s.element(); s.index++ {
		if len(w.Records) <= most {
			w.Records = append(w.Records, Record{})
			s.record(&w.Records[len(w.Records)-1])
			continue
		}
		// The batch is refused later; the rest is only checked.
		var extra Record
		mark := len(s.scratch)
		s.record(&extra)
		s.scratch = s.scratch[:mark]
	}
	s.index = -1
}

func (s *scanner) record(r *Record) {
	if !s.open('{') {
		if s.err == nil {
			s.err = Errorf(CodeInvalidRequest, "field \"%srecords[%d]\" must be an object with data (at byte %d)", s.prefix, s.index, s.i)
		}
		return
	}
	var seen uint32
	for {
		name, ok := s.member()
		if !ok {
			break
		}
		switch string(name) {
		case "data":
			if s.once(&seen, recordData, "data") {
				r.Data = s.raw()
			}
		case "tag":
			if s.once(&seen, recordTag, "tag") && !s.null() {
				r.Tag, r.HasTag = s.text("tag", acceptStringOrNull), true
			}
		case "node":
			if s.once(&seen, recordNode, "node") && !s.null() {
				r.Node, r.HasNode = s.text("node", acceptStringOrNull), true
			}
		case "meta":
			if s.once(&seen, recordMeta, "meta") && !s.null() {
				if s.i < len(s.b) && s.b[s.i] != '{' {
					s.wrong("meta", "an object or null")
				}
				r.Meta = s.raw()
			}
		case "priority":
			if s.once(&seen, recordPriority, "priority") && !s.null() {
				r.Tier, _ = TierOf(s.enum("priority", tierNames[:]))
			}
		case "fair_key":
			if s.once(&seen, recordFairKey, "fair_key") && !s.null() {
				r.FairKey = s.text("fair_key", acceptStringOrNull)
			}
		case "delay_ms":
			if s.once(&seen, recordDelay, "delay_ms") {
				r.Delay = s.uint("delay_ms", MaxDelayMS)
			}
		default:
			s.stray(name, recordFields)
			s.skip()
		}
	}
	if seen&recordData == 0 {
		s.missing("data", "any JSON value, null included")
	}
}

// CheckWrite checks a decoded write in the order of contract 18: no records, batch
// size, length of the key, then for each record tag, node, fair key, size of meta,
// keys of meta, size of the record. Between decoding and checking the caller may set an idempotency
// key from elsewhere.
func CheckWrite(w *WriteRequest, lim *Limits) error {
	if len(w.Records) == 0 {
		return Errorf(CodeInvalidRequest, "field \"records\" is empty; send at least one record")
	}
	if len(w.Records) > lim.MaxBatchRecords {
		return Errorf(CodeBatchTooLarge, "field \"records\" holds more than %d records; split the batch", lim.MaxBatchRecords)
	}
	if n := len(w.IdempotencyKey); n > MaxIdempotencyKeyBytes {
		return Errorf(CodeInvalidRequest, "field \"idempotency_key\" is %d bytes long; %d are accepted", n, MaxIdempotencyKeyBytes)
	}
	for i := range w.Records {
		if err := checkRecord(&w.Records[i], i, lim); err != nil {
			return err
		}
	}
	if n := len(w.Node); n > lim.MaxNodeBytes {
		return Errorf(CodeInvalidRequest, "field \"node\" is %d bytes long; %d are accepted", n, lim.MaxNodeBytes)
	}
	return nil
}

func checkRecord(r *Record, i int, lim *Limits) error {
	if n := len(r.Tag); n > lim.MaxTagBytes {
		return Errorf(CodeInvalidRequest, "field \"records[%d].tag\" is %d bytes long; %d are accepted", i, n, lim.MaxTagBytes)
	}
	if n := len(r.Node); n > lim.MaxNodeBytes {
		return Errorf(CodeInvalidRequest, "field \"records[%d].node\" is %d bytes long; %d are accepted", i, n, lim.MaxNodeBytes)
	}
	if n := len(r.FairKey); n > MaxFairKeyBytes {
		return Errorf(CodeInvalidRequest, "field \"records[%d].fair_key\" is %d bytes long; %d are accepted", i, n, MaxFairKeyBytes)
	}
	if n := len(r.Meta); n > lim.MaxMetaBytes {
		return Errorf(CodeInvalidRequest, "field \"records[%d].meta\" is %d bytes of compact JSON; %d are accepted", i, n, lim.MaxMetaBytes)
	}
	if n := countKeys(r.Meta); n > MaxMetaKeys {
		return Errorf(CodeInvalidRequest, "field \"records[%d].meta\" has %d keys; %d are accepted", i, n, MaxMetaKeys)
	}
	if n := r.Size(); n > lim.MaxRecordBytes {
		return Errorf(CodeRecordTooLarge, "field \"records[%d]\" is %d bytes of data and meta; %d are accepted", i, n, lim.MaxRecordBytes)
	}
	return nil
}

// shortestManyKeys is the length of the shortest object with one key too many:
// {"":1,"":1,…}.
const shortestManyKeys = 1 + (MaxMetaKeys+1)*len(`"":1,`)

// countKeys counts the members of a compact valid object, including repetitions; it may
// return 0 for one that is too short to have too many.
func countKeys(object []byte) int {
	if len(object) < shortestManyKeys {
		return 0
	}
	s := scanner{b: object, index: -1}
	n := 0
	for s.open('{'); ; n++ {
		if _, ok := s.member(); !ok {
			return n
		}
		s.skip()
	}
}
