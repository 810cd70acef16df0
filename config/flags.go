package config

import "github.com/spf13/pflag"

// AddFlags adds --config and a flag for each setting of the parts, except those
// named in without. Load reads them once the set is parsed.
func AddFlags(flags *pflag.FlagSet, parts Part, without ...string) {
	skip := map[string]bool{}
	for _, name := range without {
		skip[name] = true
	}
	help := "YAML or JSON file of settings"
	if parts&Producer != 0 {
		help += ", read again when it changes and on SIGHUP"
	}
	flags.String(fileFlag, "", help)
	mark(flags.Lookup(fileFlag))
	for _, s := range table {
		if s.part&parts == 0 || skip[s.flag()] {
			continue
		}
		f := flags.VarPF(&value{setting: s, text: s.deft}, s.flag(), "", s.help)
		if s.kind == "bool" {
			f.NoOptDefVal = "true"
		}
		mark(f)
	}
}

// annotation marks a flag that Load gives its environment twin.
const annotation = "weir-setting"

func mark(f *pflag.Flag) { f.Annotations = map[string][]string{annotation: nil} }

// Reads reports whether Load reads the flag and its environment twin, so that
// nobody else has to.
func Reads(f *pflag.Flag) bool {
	_, ok := f.Annotations[annotation]
	return ok
}

// value is the text of a flag that has been checked.
type value struct {
	setting *setting
	text    string
}

func (v *value) String() string { return v.text }
func (v *value) Type() string   { return v.setting.kind }

func (v *value) Set(text string) error {
	if err := v.setting.set(new(Settings), text); err != nil {
		return err
	}
	v.text = text
	return nil
}
