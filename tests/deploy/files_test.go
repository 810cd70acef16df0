package deploy

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/weirmq/weir/tests/weirtest"
)

// root is the folder that these tests check.
const root = "../../deploy/"

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// node is a value of YAML, of which missing parts are zero values.
type node struct{ v any }

func (n node) at(path ...any) node {
	for _, step := range path {
		switch s := step.(type) {
		case string:
			m, _ := n.v.(map[string]any)
			n.v = m[s]
		case int:
			if list := n.list(); s < len(list) {
				n = list[s]
			} else {
				n.v = nil
			}
		}
	}
	return n
}

func (n node) list() (all []node) {
	list, _ := n.v.([]any)
	for _, v := range list {
		all = append(all, node{v})
	}
	return all
}

func (n node) String() string { return fmt.Sprint(n.v) }

// documents parses a file of YAML. A key that is there twice is an error.
func documents(t *testing.T, path string) (all []node) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(read(t, path)))
	for {
		var v any
		if err := d.Decode(&v); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, node{v})
	}
}

// want fails unless the value at the path is the wanted one.
func (n node) want(t *testing.T, wanted any, path ...any) {
	t.Helper()
	if got := n.at(path...); got.String() != fmt.Sprint(wanted) {
		t.Errorf("%v is %s, want %v", path, got, wanted)
	}
}

// serverPort is the server's default port, as its help prints it.
func serverPort(t *testing.T) string {
	t.Helper()
	found := regexp.MustCompile(`--port port .*\(default (\d+)\)`).FindStringSubmatch(weirtest.Must(t, "serve", "--help"))
	if found == nil {
		t.Fatal("the help of serve names no port")
	}
	return found[1]
}

// known says that the server's settings have these variables: an unknown one is warned
// about, a wrong value refused.
func known(t *testing.T, env []string) {
	t.Helper()
	_, said, code := weirtest.Run(t, append(env, "WEIR_MAX_CLAIM=none"), "serve")
	if code != 2 || strings.Contains(said, "unknown environment variable") || !strings.Contains(said, "WEIR_MAX_CLAIM") {
		t.Errorf("with %v: code %d, %s", env, code, said)
	}
}

func TestTheDockerfile(t *testing.T) {
	t.Parallel()
	file := read(t, root+"Dockerfile")
	joined := strings.ReplaceAll(file, "\\\n", " ")
	var last []string // the instructions of the last stage
	builds := ""
	env := map[string]string{}
	for line := range strings.Lines(joined) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "FROM":
			last = nil
			if image := strings.Fields(rest)[0]; !strings.Contains(image, ":") || strings.HasSuffix(image, ":latest") {
				t.Errorf("%s names no version", line)
			}
		case "RUN":
			builds += rest
		case "ADD":
			t.Errorf("%s: COPY fetches and unpacks nothing by surprise", line)
		case "ENV":
			for _, pair := range strings.Fields(rest) {
				name, value, ok := strings.Cut(pair, "=")
				if !ok {
					t.Errorf("ENV %s: write NAME=VALUE", pair)
				}
				env[name] = value
			}
		case "CMD", "ENTRYPOINT":
			if !strings.HasPrefix(rest, "[") {
				t.Errorf("%s needs a shell, and signals would end it instead of the server", line)
			}
		}
		last = append(last, line)
	}
	make := regexp.MustCompile(`go build .*`).FindString(read(t, "../../Makefile"))
	for flag := range strings.FieldsSeq(make) {
		if strings.HasPrefix(flag, "-") && flag != "-o" && !strings.Contains(builds, flag) {
			t.Errorf("the image is not built with %s, as make build does", flag)
		}
	}
	if !strings.Contains(builds, "CGO_ENABLED=0 go build") {
		t.Error("the binary of the image is not static")
	}
	if version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../../go.mod"))[1]; !strings.Contains(file, "FROM golang:"+version+"-") {
		t.Errorf("the image is not built with Go %s of go.mod", version)
	}
	has := func(what string) bool {
		return slices.ContainsFunc(last, func(line string) bool { return regexp.MustCompile(what).MatchString(line) })
	}
	port := serverPort(t)
	for _, what := range []string{
		`^USER [1-9]\d*:[1-9]\d*$`, `^EXPOSE ` + port + `$`, `^VOLUME ` + env["WEIR_DATA_DIR"] + `$`, `^COPY .*--chown=\d+:\d+ .* ` + env["WEIR_DATA_DIR"] + `$`,
		`^HEALTHCHECK .*CMD \["/usr/local/bin/weir", "health", "http://127\.0\.0\.1:` + port + `"\]$`, `^STOPSIGNAL SIGTERM$`,
	} {
		if !has(what) {
			t.Errorf("the image lacks %s", what)
		}
	}
	var pairs []string
	for name, value := range env {
		pairs = append(pairs, name+"="+value)
	}
	known(t, pairs)
	for _, entry := range []string{"/weir-data/", "/bin/", "/.deps/", "/deploy/keys/"} {
		if !strings.Contains(read(t, "../../.dockerignore"), entry+"\n") {
			t.Errorf(".dockerignore lets %s into the image's build", entry)
		}
	}
}

func TestTheComposeFile(t *testing.T) {
	t.Parallel()
	doc := documents(t, root+"compose.yaml")[0]
	weir := doc.at("services", "weir")
	port := serverPort(t)
	weir.want(t, "deploy/Dockerfile", "build", "dockerfile")
	weir.want(t, "127.0.0.1:"+port+":"+port, "ports", 0)
	weir.want(t, true, "read_only")
	weir.want(t, "[ALL]", "cap_drop")
	known(t, []string{"WEIR_KEYS_FILE=" + weir.at("environment", "WEIR_KEYS_FILE").String()})
	for _, service := range []string{"weir", "redis"} {
		s := doc.at("services", service)
		s.want(t, "[no-new-privileges:true]", "security_opt")
		if s.at("mem_limit").v == nil {
			t.Errorf("%s has no limit of memory", service)
		}
		for _, p := range s.at("ports").list() {
			if !strings.HasPrefix(p.String(), "127.0.0.1:") {
				t.Errorf("%s is open to the network: %s", service, p)
			}
		}
		for _, v := range s.at("volumes").list() {
			from, _, _ := strings.Cut(v.String(), ":")
			if _, named := doc.at("volumes").v.(map[string]any)[from]; !named && from != "./keys" {
				t.Errorf("%s mounts %s", service, v)
			}
		}
	}
}

// manifests are the documents of Kubernetes by kind and name.
func manifests(t *testing.T) map[string]node {
	t.Helper()
	names, err := filepath.Glob(root + "kubernetes/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	all := map[string]node{}
	for _, name := range names {
		for _, doc := range documents(t, name) {
			all[doc.at("kind").String()+"/"+doc.at("metadata", "name").String()] = doc
		}
	}
	return all
}

func TestTheKubernetesManifests(t *testing.T) {
	t.Parallel()
	all := manifests(t)
	set := all["StatefulSet/weir"]
	pod := set.at("spec", "template", "spec")
	set.want(t, 1, "spec", "replicas")
	pod.want(t, true, "securityContext", "runAsNonRoot")
	pod.want(t, "RuntimeDefault", "securityContext", "seccompProfile", "type")
	pod.want(t, false, "automountServiceAccountToken")
	pod.want(t, false, "enableServiceLinks") // WEIR_PORT would be Kubernetes'
	user := regexp.MustCompile(`(?m)^USER (\d+)`).FindStringSubmatch(read(t, root+"Dockerfile"))[1]
	for _, id := range []string{"runAsUser", "fsGroup"} {
		pod.want(t, user, "securityContext", id)
	}
	if n, _ := pod.at("terminationGracePeriodSeconds").v.(int); n < 30 {
		t.Errorf("the pod is killed %d s after SIGTERM, while requests have 10 s and the log is closed", n)
	}
	c := pod.at("containers", 0)
	c.want(t, false, "securityContext", "allowPrivilegeEscalation")
	c.want(t, true, "securityContext", "readOnlyRootFilesystem")
	c.want(t, "[ALL]", "securityContext", "capabilities", "drop")
	c.want(t, serverPort(t), "ports", 0, "containerPort")
	c.want(t, "/v0/health", "livenessProbe", "httpGet", "path")
	c.want(t, "/v0/health", "startupProbe", "httpGet", "path")
	c.want(t, "/v0/ready", "readinessProbe", "httpGet", "path")
	for _, probe := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
		c.want(t, c.at("ports", 0, "name"), probe, "httpGet", "port")
	}
	// A server that replays a long log must not be killed for it, nor before --stall-after has printed the stacks.
	if p := c.at("livenessProbe"); p.at("periodSeconds").v.(int)*p.at("failureThreshold").v.(int) <= 30 {
		t.Error("the liveness probe is quicker than --stall-after")
	}
	for _, r := range [][]any{{"requests", "cpu"}, {"requests", "memory"}, {"limits", "memory"}} {
		if c.at(append([]any{"resources"}, r...)...).v == nil {
			t.Errorf("the container has no %v", r)
		}
	}
	env, pairs := map[string]string{}, []string{}
	for _, e := range c.at("env").list() {
		env[e.at("name").String()] = e.at("value").String()
		pairs = append(pairs, e.at("name").String()+"="+e.at("value").String())
	}
	known(t, pairs)
	mounted := map[string]string{}
	for _, m := range c.at("volumeMounts").list() {
		mounted[m.at("mountPath").String()] = m.at("name").String()
		if m.at("subPath").v != nil {
			t.Errorf("%s is mounted by subPath: it would never change", m.at("name"))
		}
	}
	if mounted[filepath.Dir(env["WEIR_KEYS_FILE"])] == "" || mounted[env["WEIR_DATA_DIR"]] != set.at("spec", "volumeClaimTemplates", 0, "metadata", "name").String() {
		t.Errorf("the data directory is not the claimed volume, or the keys are not mounted: %v", mounted)
	}
	if text := read(t, root+"kubernetes/statefulset.yaml"); strings.Contains(text, "hostPath") || strings.Contains(text, "hostNetwork") || strings.Contains(text, "privileged") {
		t.Error("the pod takes something of its host")
	}

	labels := set.at("spec", "template", "metadata", "labels").String()
	for _, selected := range []node{
		set.at("spec", "selector", "matchLabels"), all["Service/weir"].at("spec", "selector"), all["Service/weir-pods"].at("spec", "selector"),
		all["PodDisruptionBudget/weir"].at("spec", "selector", "matchLabels"),
	} {
		if selected.String() != labels {
			t.Errorf("a selector is %s, the pod has %s", selected, labels)
		}
	}
	set.want(t, all["Service/weir-pods"].at("metadata", "name"), "spec", "serviceName")
	for _, name := range []string{"Service/weir", "Service/weir-pods"} {
		all[name].want(t, c.at("ports", 0, "name"), "spec", "ports", 0, "targetPort")
		all[name].want(t, serverPort(t), "spec", "ports", 0, "port")
	}
	monitor := all["ServiceMonitor/weir"]
	monitor.want(t, all["Service/weir"].at("metadata", "labels"), "spec", "selector", "matchLabels")
	monitor.want(t, all["Service/weir"].at("spec", "ports", 0, "name"), "spec", "endpoints", 0, "port")
	monitor.want(t, "/metrics", "spec", "endpoints", 0, "path")
	if all["Service/weir-pods"].at("metadata", "labels").String() == labels {
		t.Error("Prometheus would scrape each pod twice")
	}
}

// The unit is judged by systemd itself, without being started.
func TestTheSystemdUnit(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("systemd is for Linux")
	}
	unit := read(t, root+"systemd/weir.service")
	settings := filepath.Join(t.TempDir(), "weir.yaml")
	start := regexp.MustCompile(`(?m)^ExecStart=(/usr/bin/weir) serve --config (\S+)$`).FindStringSubmatch(unit)
	if start == nil {
		t.Fatal("the unit starts something else than weir serve --config FILE")
	}
	if page := read(t, "../../docs/OPERATIONS.md"); !strings.Contains(page, "`After=time-sync.target`") || !regexp.MustCompile(`(?m)^After=.*\btime-sync\.target\b`).MatchString(unit) {
		t.Error("the unit does not wait for the clock, as the page says")
	}
	// A copy, which is called as it will be, and its drop-in.
	dir := t.TempDir()
	file := filepath.Join(dir, "weir.service")
	for name, text := range map[string]string{
		file: strings.ReplaceAll(unit, start[1], weirtest.Binary(t)),
		filepath.Join(dir, "weir.service.d", "credentials.conf"): read(t, root+"systemd/credentials.conf"),
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"verify", "--man=no", file}, {"security", "--offline=yes", "--threshold=20", file}} {
		if out, err := exec.Command("systemd-analyze", args...).CombinedOutput(); err != nil || args[0] == "verify" && len(out) > 0 {
			t.Errorf("systemd-analyze %v: %v\n%s", args, err, out)
		}
	}
	sysusers := exec.Command("systemd-sysusers", "--dry-run", "-")
	sysusers.Stdin = strings.NewReader(read(t, root+"systemd/weir.sysusers"))
	if out, err := sysusers.CombinedOutput(); err != nil {
		t.Errorf("systemd-sysusers: %v\n%s", err, out)
	}

	// The file of settings is one, also with every line that is commented out.
	text := read(t, root+"systemd/weir.yaml")
	for _, text := range []string{text, regexp.MustCompile(`(?m)^#([a-z_]+:)`).ReplaceAllString(text, "$1")} {
		if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		known(t, []string{"WEIR_CONFIG=" + settings, "WEIR_KEYS_FILE=", "WEIR_API_KEYS="})
	}
	for _, m := range regexp.MustCompile(`Environment=(WEIR_\w+)=`).FindAllStringSubmatch(read(t, root+"systemd/credentials.conf"), -1) {
		known(t, []string{m[1] + "=x"})
	}
}

// goreleaser itself is not run here; its file names what there is, and builds as make build does.
func TestTheReleaseConfiguration(t *testing.T) {
	t.Parallel()
	doc := documents(t, root+"goreleaser.yaml")[0]
	build := doc.at("builds", 0)
	build.want(t, "[CGO_ENABLED=0]", "env")
	build.want(t, "[grpcnotrace]", "tags")
	build.want(t, "[-trimpath]", "flags")
	build.want(t, "[linux darwin]", "goos")
	build.want(t, "[amd64 arm64]", "goarch")
	pack := doc.at("nfpms", 0)
	pack.want(t, "[deb rpm]", "formats")
	if doc.at("checksum", "name_template").v == nil || doc.at("sboms", 0, "artifacts").v == nil {
		t.Error("a release has no checksums or no bill of materials")
	}
	files := []string{pack.at("scripts", "postinstall").String(), pack.at("scripts", "preremove").String()}
	targets := map[string]string{}
	for _, c := range pack.at("contents").list() {
		if src := c.at("src").String(); !strings.HasPrefix(src, "bin/") { // those make man writes: see man_test.go
			files = append(files, src)
		}
		targets[c.at("src").String()] = c.at("dst").String()
	}
	for _, src := range files {
		if _, err := os.Stat("../../" + src); err != nil {
			t.Errorf("the packages hold %s: %v", src, err)
		}
	}
	start := regexp.MustCompile(`(?m)^ExecStart=(\S+)/weir serve --config (\S+)$`).FindStringSubmatch(read(t, root+"systemd/weir.service"))
	pack.want(t, start[1], "bindir")
	if targets["deploy/systemd/weir.yaml"] != start[2] {
		t.Errorf("the unit reads %s, the package has it at %s", start[2], targets["deploy/systemd/weir.yaml"])
	}
	for _, script := range files[:2] {
		if out, err := exec.Command("sh", "-n", "../../"+script).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
	}
}
