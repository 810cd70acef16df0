package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/weirmq/weir/internal/client"
	"github.com/weirmq/weir/internal/settings"
)

// keyOptions are the sources of a command's API key, for URLs without one.
type keyOptions struct {
	file string
	text string
}

// fields adds the settings to those of a command.
func (o *keyOptions) fields(f settings.Fields) settings.Fields {
	f["api-key-file"], f["api-key"] = &o.file, &o.text
	return f
}

// maxKeyFileBytes limits the size of a key file.
const maxKeyFileBytes = 64 << 10

// connect returns a client for a URL's target. The URL's own key comes first, then
// the key file, then WEIR_API_KEY.
func (o *keyOptions) connect(target client.Target) (*client.Client, error) {
	key := target.Key
	if key == "" {
		var err error
		if key, err = o.key(); err != nil {
			return nil, err
		}
	}
	return client.New(target.Base, key), nil
}

// key returns the key of the file or the environment, empty if there is none.
func (o *keyOptions) key() (string, error) {
	key := strings.TrimSpace(o.text)
	if o.file != "" {
		var err error
		if key, err = readKey(o.file); err != nil {
			return "", &usageError{fmt.Errorf("--api-key-file: %w", err)}
		}
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return "", &usageError{errors.New("the API key contains a control character; it must be one line of text")}
	}
	return key, nil
}

func readKey(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFileBytes))
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(text))
	if key == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return key, nil
}
