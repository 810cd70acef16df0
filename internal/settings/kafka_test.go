package settings

import (
	"fmt"
	"strings"
	"testing"
)

func TestAURLOfKafkaGetsWhatItDoesNotSay(t *testing.T) {
	k := Kafka{User: "mailer", Password: "pw-secret/1"}
	for raw, want := range map[string]string{
		"kafka://h/jobs":              "kafka://mailer:pw-secret%2F1@h/jobs",
		"kafkas://a:1,b:2/jobs?ca=x":  "kafkas://mailer:pw-secret%2F1@a:1,b:2/jobs?ca=x",
		"kafka://mailer@h/jobs":       "kafka://mailer:pw-secret%2F1@h/jobs",
		"kafka://other@h/jobs":        "kafka://other@h/jobs",
		"kafka://u:own@h/jobs":        "kafka://u:own@h/jobs",
		"redis://h/0?stream=jobs":     "redis://h/0?stream=jobs",
		"kafka://not a URL: at all%%": "kafka://not a URL: at all%%",
	} {
		if got := k.URL(raw); got != want {
			t.Errorf("%s becomes %s, want %s", raw, got, want)
		}
	}
	for k, want := range map[Kafka]string{{}: "kafka://h/jobs", {User: "u"}: "kafka://u@h/jobs", {Password: "p"}: "kafka://:p@h/jobs"} {
		if got := k.URL("kafka://h/jobs"); got != want {
			t.Errorf("%v: %s, want %s", k, got, want)
		}
	}
	limits := Kafka{BufferMemory: 1 << 20, MaxInFlight: 5}
	for raw, want := range map[string]string{
		"kafka://h/jobs":                                 "kafka://h/jobs?buffer_memory=1048576&max_in_flight=5",
		"kafka://h/jobs?group=g&buffer_memory=7":         "kafka://h/jobs?buffer_memory=7&group=g&max_in_flight=5",
		"kafka://h/jobs?max_in_flight=1&buffer_memory=7": "kafka://h/jobs?max_in_flight=1&buffer_memory=7",
		"http://h/jobs":                                  "http://h/jobs",
	} {
		if got := limits.URL(raw); got != want {
			t.Errorf("limits of %s: %s, want %s", raw, got, want)
		}
	}
	if got := (Kafka{Password: "p"}).URL("kafka://u@h/jobs"); got != "kafka://u:p@h/jobs" {
		t.Errorf("a password alone: %s", got)
	}
	if shown := fmt.Sprintf("%v %+v %#v %s", k, Configs{Kafka: k}, k, k); strings.Contains(shown, "pw-secret") {
		t.Errorf("printed: %s", shown)
	}
}
