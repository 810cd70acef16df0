package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFileBytes bounds a file of settings.
const maxFileBytes = 1 << 20

// readFile reads the file, if there is one, and returns what it says for the command. Keys of
// other commands are left alone; every value for this one has to be right, even if a
// flag beats it.
func (src Source) readFile() (map[*Setting]given, error) {
	path := src.Path()
	if path == "" {
		return nil, nil
	}
	text, err := readAtMost(path, maxFileBytes)
	if err != nil {
		return nil, fmt.Errorf("config file: %w", err)
	}
	var doc, more yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(text))
	switch err := documents.Decode(&doc); {
	case err == io.EOF:
		return nil, nil // nothing but comments
	case err != nil:
		return nil, unreadable(path, text, err)
	}
	switch err := documents.Decode(&more); {
	case err == nil:
		return nil, fmt.Errorf("config file %s, line %d: another document begins; write all settings as one", path, more.Content[0].Line)
	case err != io.EOF:
		return nil, unreadable(path, text, err)
	}
	top := doc.Content[0]
	if top.Kind == yaml.ScalarNode && top.Tag == "!!null" {
		return nil, nil
	}
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("config file %s, line %d: write settings as key: value", path, top.Line)
	}
	return src.readKeys(path, top.Content)
}

// unreadable returns the error of a file that is neither YAML nor JSON, with the line. The
// reader of YAML leaves out the first line's number and miscounts at tabs.
func unreadable(path string, text []byte, err error) error {
	why := strings.TrimPrefix(err.Error(), "yaml: ")
	at := 1
	if n, rest, ok := strings.Cut(strings.TrimPrefix(why, "line "), ": "); ok && strings.HasPrefix(why, "line ") {
		if at, err = strconv.Atoi(n); err == nil {
			why = rest
		}
	}
	switch {
	case strings.Contains(why, "control characters"), strings.Contains(why, "UTF-8"), strings.Contains(why, "UTF-16"):
		return fmt.Errorf("config file %s is neither YAML nor JSON: %s", path, why)
	case !strings.HasPrefix(strings.TrimSpace(string(text)), "{"): // where tabs are allowed
		for i, line := range strings.Split(string(text), "\n") {
			if indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]; strings.Contains(indent, "\t") {
				at, why = i+1, "a tab indents; use spaces"
				break
			}
		}
	}
	return fmt.Errorf("config file %s, line %d: neither YAML nor JSON: %s", path, at, why)
}

// readKeys reads pairs of a key and a value.
func (src Source) readKeys(path string, pairs []*yaml.Node) (map[*Setting]given, error) {
	found := map[*Setting]given{}
	lines := map[string]int{}
	for i := 0; i+1 < len(pairs); i += 2 {
		key, at := pairs[i].Value, pairs[i].Line
		where := fmt.Sprintf("config file %s, line %d, key %s", path, at, key)
		rows := findKey(key)
		if len(rows) == 0 {
			return nil, fmt.Errorf("config file %s, line %d: unknown key %q%s", path, at, key, Meant("", key, fileKeys()))
		}
		if before, ok := lines[key]; ok {
			return nil, fmt.Errorf("%s: already set in line %d", where, before)
		}
		lines[key] = at
		for _, s := range rows {
			if s.in&src.Command == 0 {
				continue
			}
			text, err := s.scalar(pairs[i+1])
			if err == nil {
				_, err = s.kind.read(text)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", where, err)
			}
			found[s] = given{text, where}
		}
	}
	return found, nil
}

func readAtMost(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s is larger than %d bytes", path, most)
	}
	return text, err
}

// scalar is the text of a file's value. It stands as it is written if that is valid, as in the
// environment: YAML takes 010 for eight, and a name for a number. Other numbers are YAML's, such as 1e3.
func (s *Setting) scalar(n *yaml.Node) (string, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Kind != yaml.ScalarNode:
		return "", errors.New("a list or a map is not a value: write text, a number, true or false")
	case n.Tag == "!!null":
		return "", errors.New("there is no value: write text, a number, true or false")
	}
	if _, err := s.kind.read(n.Value); err == nil {
		return n.Value, nil
	}
	switch n.Tag {
	case "!!int":
		var i int64
		if n.Decode(&i) == nil {
			return strconv.FormatInt(i, 10), nil
		}
	case "!!float":
		var f float64
		if n.Decode(&f) == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
			return strconv.FormatFloat(f, 'f', -1, 64), nil
		}
	}
	return n.Value, nil
}
