package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/atomicfile"
)

// FileName is the name of the file in the data directory. It holds secrets, so that it has
// mode 0600 and no backup, copy or bundle has it.
const FileName = "WEBHOOKS"

const format = 1

// contents is the file:
//
//	{"format":1,"webhooks":{"NAME":{"topic":…,"url":…,"secret":…,"concurrency":…,"rate":…,"timeout_ms":…,"headers":{…}}}}
type contents struct {
	Format   int             `json:"format"`
	Webhooks map[string]kept `json:"webhooks"`
}

type kept struct {
	Topic       string            `json:"topic"`
	URL         string            `json:"url"`
	Secret      string            `json:"secret"`
	Concurrency int               `json:"concurrency"`
	Rate        int               `json:"rate,omitempty"`
	TimeoutMS   int               `json:"timeout_ms"`
	Headers     map[string]string `json:"headers,omitempty"`
}

// load reads the file. One that is not as save writes it is an error: nobody may be
// delivered to by mistake, and what is there must not be overwritten.
func load(file string) (map[string]api.WebhookConfig, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var c contents
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil || dec.More() {
		return nil, fmt.Errorf("%s is damaged or of a later version: repair it, or remove it and set the webhooks again", file)
	}
	if c.Format != format {
		return nil, fmt.Errorf("%s has format %d; this version knows %d", file, c.Format, format)
	}
	all := make(map[string]api.WebhookConfig, len(c.Webhooks))
	for name, k := range c.Webhooks {
		if len(k.Secret) < api.MinWebhookSecretBytes || k.Concurrency < 1 || k.Concurrency > api.MaxWebhookConcurrency ||
			k.Rate < 0 || k.Rate > api.MaxWebhookRate || k.TimeoutMS < api.MinWebhookTimeoutMS || k.TimeoutMS > api.MaxWebhookTimeoutMS {
			return nil, fmt.Errorf("%s: webhook %q has a value that could not have been set", file, name)
		}
		all[name] = api.WebhookConfig(k)
	}
	return all, nil
}

// save replaces the file in one step, and returns once it is on the disk.
func save(file string, all map[string]api.WebhookConfig) error {
	c := contents{Format: format, Webhooks: make(map[string]kept, len(all))}
	for name, cfg := range all {
		c.Webhooks[name] = kept(cfg)
	}
	text, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		return err
	}
	return atomicfile.Write(file, text)
}
