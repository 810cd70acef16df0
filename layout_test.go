package weir_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/weirmq/weir"

// maxLines is where a file has grown a second noun. Generated files are exempt.
const maxLines = 700

const (
	vfs     = "github.com/cockroachdb/pebble/v2/vfs"
	errorfs = "github.com/cockroachdb/pebble/v2/vfs/errorfs"
	pebble  = "github.com/cockroachdb/pebble/v2/..."
	gzip    = "github.com/klauspost/compress/gzip"
	socket  = "github.com/coder/websocket"
	metrics = "github.com/prometheus/client_golang/prometheus/..."
	cobra   = "github.com/spf13/cobra"
	pflag   = "github.com/spf13/pflag"
	term    = "golang.org/x/term"
	tea     = "charm.land/bubbletea/v2"
	ansi    = "github.com/charmbracelet/x/ansi"
	pty     = "github.com/creack/pty"
	otel    = "go.opentelemetry.io/otel/..."
	franz   = "github.com/twmb/franz-go/pkg/..."
	pgx     = "github.com/jackc/pgx/v5/..."

	yaml  = "go.yaml.in/yaml/v3"
	rapid = "pgregory.net/rapid"
)

// rule says what a package may import beyond the standard library. Paths without
// a dot in their first element are folders of this repository; a path that ends
// in /... stands for everything below it too.
type rule struct {
	code  string // files of the package, and its tests
	tests string // its tests alone
}

// table is the only place where an import is allowed; docs/decisions/0001 tells
// the reasons. A package that is not here fails the test.
var table = map[string]rule{
	".":       {code: "backend internal/admission", tests: module + " open backend/backendtest tests/capture tests/redistest tests/stall tests/weirtest"},
	"open":    {code: module + " backend backend/embedded backend/kafka backend/redis backend/remote backend/shard internal/address", tests: "tests/stall"},
	"backend": {},

	"backend/backendtest": {code: "backend tests/leak tests/link tests/stall"},
	"backend/shard": {
		code:  "backend",
		tests: "backend/backendtest open tests/redistest tests/stall " + module,
	},
	"backend/internal/queue": {
		code:  "backend internal/api",
		tests: "backend/backendtest backend/embedded backend/remote internal/engine internal/server tests/redistest tests/stall " + vfs,
	},
	"backend/embedded": {code: "backend backend/internal/queue internal/address internal/api internal/engine " + vfs, tests: errorfs},
	"backend/remote":   {code: "backend backend/internal/queue internal/address internal/api internal/client", tests: "tests/weirtest"},

	"telemetry/tracing": {code: module + " backend " + otel, tests: "open backend/backendtest tests/redistest tests/tracetest"},

	"telemetry":       {code: module + " " + metrics, tests: "open backend/backendtest"},
	"config":          {code: module + " internal/settings", tests: "tests/capture"},
	"examples/shop":   {code: module, tests: "backend open"},
	"examples/orders": {code: module + " backend/redis github.com/redis/go-redis/v9 github.com/redis/go-redis/v9/logging", tests: "tests/capture tests/redistest"},
	"backend/redis":   {code: "backend internal/address github.com/redis/go-redis/v9", tests: "github.com/redis/go-redis/v9/maintnotifications backend/backendtest tests/capture tests/leak tests/redistest tests/stall github.com/weirmq/weir"},

	"backend/kafka": {code: "backend internal/address internal/kafkalogin internal/patient " + franz, tests: "telemetry " + metrics + " backend/backendtest tests/capture tests/kafkatest tests/leak tests/link tests/stall tests/tracetest open github.com/weirmq/weir"},

	"internal/address":    {code: "internal/certs"},
	"internal/kafkalogin": {code: franz},
	"internal/patient":    {code: franz, tests: "tests/bubble"},
	"internal/admission":  {},
	"internal/certs":      {tests: "tests/certtest"},
	"internal/atomicfile": {},
	"internal/keyfile":    {code: "internal/atomicfile"},
	"internal/api":        {tests: rapid},
	"internal/op":         {code: "internal/api", tests: rapid},
	"internal/wal":        {code: vfs, tests: "tests/crashfs " + rapid + " " + errorfs},
	"internal/replica":    {},

	"internal/replica/replicatest": {code: "internal/replica"},
	"internal/replica/slots":       {code: "internal/replica", tests: "internal/replica/dir internal/replica/replicatest"},
	"internal/replica/dir":         {code: "internal/replica internal/replica/slots"},
	"internal/replica/postgres":    {code: "internal/replica " + pgx, tests: "internal/replica/replicatest tests/link tests/postgrestest"},
	"internal/replica/s3":          {code: "internal/replica internal/replica/slots github.com/minio/minio-go/v7/...", tests: "internal/replica/replicatest tests/s3test"},
	"internal/replica/audit":       {code: "internal/replica", tests: "internal/replica/dir internal/replica/replicatest internal/replica/slots"},
	"internal/replica/kafka":       {code: "internal/address internal/kafkalogin internal/patient internal/replica " + franz, tests: "internal/replica/replicatest tests/kafkatest tests/link tests/stall"},
	"internal/replica/stores":      {code: "internal/replica internal/replica/slots internal/replica/dir internal/replica/kafka internal/replica/postgres internal/replica/s3", tests: "tests/kafkatest tests/postgrestest"},

	"internal/replica/restore": {code: "internal/replica internal/wal " + vfs, tests: "internal/api internal/engine internal/op tests/crashfs " + errorfs},

	"internal/store":        {code: "internal/api internal/op internal/wal " + pebble, tests: "tests/crashfs " + rapid},
	"internal/engine/topic": {code: "internal/api internal/op", tests: rapid},
	"internal/engine/queue": {code: "internal/api internal/op", tests: rapid},

	"internal/engine/sched":    {tests: rapid},
	"internal/engine/governor": {},
	"internal/engine/push":     {code: "internal/api"},

	"internal/engine": {
		code: "internal/admission internal/api internal/op internal/wal internal/replica internal/store " +
			"internal/engine/topic internal/engine/queue internal/engine/sched " +
			"internal/engine/governor internal/engine/push " + vfs,
		tests: "tests/capture tests/crashfs tests/stall " + rapid + " " + errorfs,
	},
	"internal/board":    {code: module + " backend internal/dash"},
	"internal/dash":     {},
	"internal/top":      {code: "internal/board internal/client internal/dash " + tea + " " + ansi},
	"internal/server":   {code: module + " backend backend/embedded internal/api internal/atomicfile internal/board internal/certs internal/dash internal/engine internal/keyfile internal/pieces internal/relay internal/webhook " + gzip + " " + metrics + " " + socket, tests: "internal/replica/replicatest tests/capture tests/stall " + vfs},
	"internal/pieces":   {code: socket},
	"internal/relay":    {code: "internal/api internal/certs internal/engine/push internal/pieces " + metrics + " " + socket, tests: "internal/engine internal/server tests/crashfs " + vfs},
	"internal/client":   {code: "backend internal/api internal/certs " + socket, tests: "tests/bubble"},
	"internal/latency":  {},
	"internal/load":     {code: module + " internal/latency", tests: "backend/backendtest"},
	"internal/overload": {code: module + " backend internal/settings", tests: "backend/backendtest"},
	"internal/webhook":  {code: "internal/api internal/atomicfile"},
	"internal/otlp":     {code: module + " telemetry/tracing " + otel + " go.opentelemetry.io/contrib/... github.com/go-logr/logr " + metrics},
	"internal/settings": {code: module + " internal/api " + pflag + " " + yaml},
	"cmd/weir":          {code: module + " open backend backend/remote telemetry " + metrics + " internal/api internal/atomicfile internal/board internal/certs internal/client internal/dash internal/engine internal/keyfile internal/latency internal/load internal/otlp internal/overload internal/relay internal/replica internal/replica/audit internal/replica/restore internal/replica/stores internal/server internal/settings internal/top internal/webhook " + cobra + " " + pflag + " " + term + " github.com/KimMachineGun/automemlimit/memlimit github.com/redis/go-redis/v9 github.com/redis/go-redis/v9/logging", tests: "tests/capture tests/certtest tests/stall github.com/twmb/franz-go/pkg/kfake " + rapid},

	"bench/handlers":      {code: "internal/api"},
	"bench/kafka":         {code: module + " open tests/kafkatest tests/redistest " + franz},
	"bench/copied":        {code: "bench/scenario tests/kafkatest tests/postgrestest tests/redistest"},
	"bench/clients":       {code: "tests/process"},
	"bench/load":          {code: "internal/latency"},
	"bench/watchers":      {code: "bench/load"},
	"bench/report":        {},
	"bench/scenario":      {code: "bench/load bench/report tests/certtest"},
	"bench/cmd/weirbench": {code: "bench/scenario"},
	"bench":               {tests: "bench/report bench/scenario"},
	"bench/sawtooth":      {code: module + " open github.com/redis/go-redis/v9"},
	"bench/sawtooth/plot": {code: "gonum.org/v1/plot/..."},
	"bench/library":       {code: module + " open github.com/redis/go-redis/v9"},
	"bench/peers": {code: "github.com/nats-io/nats-server/v2/server github.com/nats-io/nats.go/... " +
		"github.com/redis/go-redis/v9 github.com/hibiken/asynq github.com/ThreeDotsLabs/watermill github.com/ThreeDotsLabs/watermill/message " +
		"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream " +
		"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka github.com/IBM/sarama"},

	"tests/build":           {},
	"tests/weirtest":        {code: "tests/build tests/process"},
	"tests/cloudevents":     {tests: "tests/weirtest github.com/cloudevents/sdk-go/v2/..."},
	"tests/s3test":          {code: "internal/replica/replicatest"},
	"tests/s3test/server":   {code: "github.com/johannesboyne/gofakes3/..."},
	"tests/tracetest":       {code: module + " backend telemetry/tracing " + otel},
	"tests/stall":           {},
	"tests/bubble":          {},
	"tests/crashfs":         {code: vfs},
	"tests/capture":         {},
	"tests/leak":            {},
	"tests/certtest":        {},
	"tests/kafkatest":       {code: "tests/certtest tests/process " + franz},
	"tests/postgrestest":    {code: "tests/process github.com/jackc/pgx/v5", tests: "github.com/jackc/pgx/v5"},
	"tests/link":            {code: "tests/process"},
	"tests/process":         {},
	"tests/redistest":       {code: "tests/link tests/process github.com/redis/go-redis/v9"},
	"tests/browser":         {tests: "tests/process tests/weirtest github.com/chromedp/chromedp/... github.com/chromedp/cdproto/..."},
	"site":                  {tests: "tests/process tests/weirtest golang.org/x/net/html github.com/chromedp/chromedp/... github.com/chromedp/cdproto/..."},
	"site/commands":         {},
	"tests/openapi":         {code: "tests/contract github.com/pb33f/jsonschema/v6 github.com/pb33f/libopenapi/... github.com/pb33f/libopenapi-validator/..."},
	"tests/contract":        {code: "tests/stall", tests: "tests/kafkatest tests/postgrestest tests/s3test tests/weirtest"},
	"tests/soak":            {code: module + " open tests/redistest github.com/redis/go-redis/v9"},
	"tests/library/chaos":   {code: module + " open backend tests/redistest tests/stall github.com/redis/go-redis/v9"},
	"tests/library":         {tests: module + " open backend config telemetry tests/capture tests/kafkatest tests/link tests/redistest tests/stall tests/weirtest github.com/redis/go-redis/v9 " + metrics},
	"tests/cli":             {tests: module + " open backend tests/certtest tests/kafkatest tests/link tests/process tests/tracetest go.opentelemetry.io/proto/otlp/... google.golang.org/protobuf/proto tests/redistest tests/stall tests/weirtest github.com/redis/go-redis/v9 " + pty},
	"tests/clients":         {tests: "tests/certtest tests/link tests/process tests/stall tests/weirtest"},
	"tests/deploy":          {tests: "tests/process tests/weirtest " + yaml + " " + socket},
	"tests/relay":           {tests: "tests/weirtest"},
	"tests/overload":        {tests: "tests/stall tests/weirtest"},
	"tests/oracle":          {tests: "tests/oracle/fake " + rapid},
	"tests/oracle/fake":     {},
	"tests/push":            {tests: "tests/push/runs tests/weirtest"},
	"tests/push/runs":       {code: "bench/load tests/build tests/stall"},
	"tests/push/slow":       {code: "tests/push/runs"},
	"tests/sim":             {tests: "internal/api internal/engine tests/crashfs " + vfs + " " + errorfs},
	"tests/replica":         {tests: "internal/replica/replicatest tests/crash/rounds tests/link tests/s3test tests/stall tests/weirtest"},
	"tests/crash":           {tests: "tests/crash/rounds tests/oracle tests/weirtest github.com/anishathalye/porcupine"},
	"tests/crash/rounds":    {code: "tests/build tests/oracle", tests: "tests/oracle/fake"},
	"tests/crash/kill":      {code: "tests/crash/rounds"},
	"tests/push/saturation": {code: "tests/push/runs"},
	"tests/backup":          {code: "tests/crash/rounds"},
	"tests/crash/cut":       {code: "tests/crash/rounds github.com/hanwen/go-fuse/v2/..."},

	"tests/clients/typescript": {tests: "tests/process tests/weirtest"},
}

// source is one parsed Go file of the repository.
type source struct {
	path string // slash-separated, from the root
	file *ast.File
	fset *token.FileSet
}

func (s source) dir() string           { return path.Dir(s.path) }
func (s source) test() bool            { return strings.HasSuffix(s.path, "_test.go") }
func (s source) lines() int            { return s.fset.File(s.file.FileStart).LineCount() }
func (s source) at(p token.Pos) string { return s.fset.Position(p).String() }

// sources returns every Go file of the repository, those of the nested modules too.
func sources(t *testing.T) []source {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 100 {
		t.Fatalf("found %d Go files: the walk misses the repository", len(all))
	}
	return all
}

// parsed is what all tests read: parsing takes longer than what they do with it.
var parsed = sync.OnceValues(func() (all []source, err error) {
	err = filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"),
			d.IsDir() && (d.Name() == "node_modules" || name == "bin" || name == filepath.Join("bench", "out")):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(name) != ".go":
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		all = append(all, source{filepath.ToSlash(name), file, fset})
		return err
	})
	return all, err
})

func TestImportsFollowTheTable(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range sources(t) {
		allowed, known := table[s.dir()]
		if !known && !seen[s.dir()] {
			t.Errorf("package %s is not in the table of layout_test.go: add it with what it may import", s.dir())
		}
		seen[s.dir()] = true
		list := allowed.code
		if s.test() {
			list += " " + allowed.tests + " " + s.dir() + " tests/bubble"
		}
		for _, spec := range s.file.Imports {
			name := strings.Trim(spec.Path.Value, `"`)
			if name == "C" {
				t.Errorf("%s imports C: weir is built without cgo", s.at(spec.Pos()))
				continue
			}
			if known && !standard(name) && !slices.ContainsFunc(strings.Fields(list), matches(name)) {
				t.Errorf("%s: %s may not import %s (table of layout_test.go)", s.at(spec.Pos()), s.dir(), name)
			}
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(table)) {
		if !seen[dir] {
			t.Errorf("the table names %s, which is gone", dir)
		}
	}
}

// A program that uses one backend compiles that one alone: neither the root
// package, nor what it decides with, nor the seam brings anybody else's code along.
func TestTheRootPackageHasNoThirdParties(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{module + "/backend", module + "/internal/admission", module}
	if got := strings.Fields(string(out)); !slices.Equal(got, want) {
		t.Errorf("go list -deps . prints %v besides the standard library, want %v", got, want)
	}
}

func standard(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return !strings.Contains(first, ".")
}

// matches returns whether an entry of the table covers the import path name.
func matches(name string) func(entry string) bool {
	name = strings.TrimPrefix(name, module+"/")
	return func(entry string) bool {
		base, below := strings.CutSuffix(entry, "/...")
		return name == base || below && strings.HasPrefix(name, base+"/")
	}
}

// section returns the part of a page below a heading, up to the next heading of
// any level.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no %q", page, heading)
	}
	rest, _, _ = strings.Cut(rest, "\n#")
	return rest
}

var quoted = regexp.MustCompile("`([^`]+)`")

// The file map names every folder with Go code, no other, and files to begin with
// that are there.
func TestEveryPackageIsOnTheMap(t *testing.T) {
	const page = "docs/ARCHITECTURE.md"
	mapped := map[string]bool{}
	for row := range strings.Lines(section(t, page, "## File map")) {
		cells := strings.Split(row, "|")
		if len(cells) != 5 {
			continue
		}
		folder := ""
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			folder = cmp.Or(folder, m[1])
			mapped[m[1]] = true
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[3], -1) {
			if _, err := os.Stat(filepath.Join(folder, m[1])); err != nil && folder != "" {
				t.Errorf("%s: %s is to begin with %s, which is gone", page, folder, m[1])
			}
		}
	}
	there := map[string]bool{"tools": true} // a module without code
	for _, s := range sources(t) {
		there[s.dir()] = true
	}
	for _, dir := range slices.Sorted(maps.Keys(there)) {
		if !mapped[dir] {
			t.Errorf("%s: the file map lacks %s", page, dir)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(mapped)) {
		if !there[dir] {
			t.Errorf("%s: the file map names %s, which is gone", page, dir)
		}
	}
}

// A module is a decision: what go.mod requires directly is what 0004 tells the
// reason of, at that version.
func TestImportsFromOutsideAreDecided(t *testing.T) {
	const page = "docs/decisions/0004-dependencies.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	decided, _, _ := strings.Cut(string(text), "In modules of their own") // they are no requirements
	reasons := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([\w./-]+\.[\w./-]+) \| (v\S+) \|`).FindAllStringSubmatch(decided, -1) {
		reasons[m[1]] = m[2]
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	required := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^(?:require)?\s+(\S+) (v\S+)( // indirect)?$`).FindAllStringSubmatch(string(mod), -1) {
		if m[3] == "" {
			required[m[1]] = m[2]
		}
	}
	for module, where := range users(t, slices.Collect(maps.Keys(required))) {
		if row := fmt.Sprintf("| %s | %s | ", module, required[module]); !slices.Equal(where, folders(decided, row)) {
			t.Errorf("%s: %s is used in %v", page, module, where)
		}
	}
	if !maps.Equal(reasons, required) {
		t.Errorf("go.mod requires %v\n%s gives reasons for %v", required, page, reasons)
	}
}

// users returns the folders of the product that import each of the modules.
func users(t *testing.T, modules []string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, s := range sources(t) {
		if top, _, _ := strings.Cut(s.path, "/"); s.test() || top == "bench" || top == "tests" {
			continue
		}
		for _, spec := range s.file.Imports {
			name, best := strings.Trim(spec.Path.Value, `"`), ""
			for _, m := range modules {
				if (name == m || strings.HasPrefix(name, m+"/")) && len(m) > len(best) {
					best = m
				}
			}
			if best != "" && !slices.Contains(found[best], s.dir()) {
				found[best] = append(found[best], s.dir())
			}
		}
	}
	for _, m := range modules {
		slices.Sort(found[m])
	}
	return found
}

// folders returns what the cell behind the start of a row quotes, but names of
// packages.
func folders(page, row string) (all []string) {
	_, rest, _ := strings.Cut(page, row)
	cell, _, _ := strings.Cut(rest, "|")
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		if strings.Contains(m[1], "/") || table[m[1]].code != "" {
			all = append(all, m[1])
		}
	}
	slices.Sort(all)
	return all
}

func TestRoomsOfTheEngineDoNotKnowEachOther(t *testing.T) {
	const floor = "internal/engine"
	for _, s := range sources(t) {
		if path.Dir(s.dir()) != floor {
			continue
		}
		for _, spec := range s.file.Imports {
			name := strings.TrimPrefix(strings.Trim(spec.Path.Value, `"`), module+"/")
			if (name == floor || strings.HasPrefix(name, floor+"/")) && name != s.dir() {
				t.Errorf("%s: room %s imports %s: what it needs from there is an argument or a plan",
					s.at(spec.Pos()), s.dir(), name)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	said := map[string]bool{}
	for _, s := range sources(t) {
		start := "Package " + s.file.Name.Name + " "
		if s.file.Name.Name == "main" {
			start = "Command "
		}
		said[s.dir()] = said[s.dir()] || strings.HasPrefix(s.file.Doc.Text(), start)
	}
	for _, dir := range slices.Sorted(maps.Keys(said)) {
		if !said[dir] {
			t.Errorf("%s has no comment that starts with Package or Command and a name", dir)
		}
	}
}

func TestNoPackageIsADrawerForAnything(t *testing.T) {
	for _, s := range sources(t) {
		switch name := path.Base(s.dir()); name {
		case "util", "utils", "common", "helper", "helpers", "misc", "shared", "base":
			t.Errorf("%s: %q says nothing: name the package for what it holds", s.path, name)
		}
	}
}

func TestFilesStayReadable(t *testing.T) {
	for _, s := range sources(t) {
		if n := s.lines(); n > maxLines && !ast.IsGenerated(s.file) {
			t.Errorf("%s has %d lines, at most %d: look for its second noun", s.path, n, maxLines)
		}
	}
}

// A server without a deadline for headers is held open by anyone who sends one
// byte a minute. (A test's own server has only the test for a client.)
func TestEveryHTTPServerHasAHeaderDeadline(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok || !isHTTPServer(lit.Type) {
				return true
			}
			if !slices.ContainsFunc(lit.Elts, setsHeaderDeadline) {
				t.Errorf("%s: this http.Server has no ReadHeaderTimeout", s.at(lit.Pos()))
			}
			return true
		})
	}
}

// What is copied out of the log is taken where it is written, so there is one
// such place (and zeros, the mark and the list of what is lost are not copied; truncate
// ends the log of a directory that no server has open).
func TestTheLogWritesItsSegmentsInOnePlace(t *testing.T) {
	writers := map[string]bool{"put": true, "createZeroed": true, "writeMark": true, "openMark": true, "MarkLost": true, "truncate": true}
	for _, s := range sources(t) {
		if s.test() || s.dir() != "internal/wal" {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || writers[f.Name.Name] {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok && (sel.Sel.Name == "WriteAt" || sel.Sel.Name == "Write") {
					t.Errorf("%s: %s writes a file itself; segments are written by put", s.at(sel.Pos()), f.Name.Name)
				}
				return true
			})
		}
	}
}

// Virtual time is bubble.Run's, which keeps the race detector from crashing in it.
func TestEveryBubbleIsRunByBubble(t *testing.T) {
	for _, s := range sources(t) {
		if s.dir() == "tests/bubble" || s.dir() == "examples/shop" { // which users copy; its TestMain has one processor
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Test" {
				return true
			}
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "synctest" {
				t.Errorf("%s: use bubble.Run (tests/bubble) instead of synctest.Test", s.at(sel.Pos()))
			}
			return true
		})
	}
}

func isHTTPServer(e ast.Expr) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Server" {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && pkg.Name == "http"
}

func setsHeaderDeadline(e ast.Expr) bool {
	kv, ok := e.(*ast.KeyValueExpr)
	if !ok {
		return false
	}
	key, ok := kv.Key.(*ast.Ident)
	return ok && key.Name == "ReadHeaderTimeout"
}
