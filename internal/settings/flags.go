package settings

import "github.com/spf13/pflag"

// AddFlags adds a flag for each setting of the command. Load reads them once the set is parsed.
func AddFlags(flags *pflag.FlagSet, c Command) {
	for _, s := range of(c) {
		if s.places&byFlag == 0 {
			continue
		}
		f := flags.VarPF(&value{setting: s, text: s.deft}, s.name, s.short, s.help)
		if s.kind.typ == boolean.typ {
			f.NoOptDefVal = "true"
		}
		if s.was != "" {
			old := flags.VarPF(f.Value, s.was, "", s.help)
			old.Hidden, old.Deprecated = true, "use --"+s.name
		}
	}
}

// Owns reports whether AddFlags has added the flag.
func Owns(f *pflag.Flag) bool {
	_, ok := f.Value.(*value)
	return ok
}

// value is the text of a flag, which has been checked.
type value struct {
	setting *Setting
	text    string
}

func (v *value) String() string { return v.text }
func (v *value) Type() string   { return v.setting.kind.typ }

func (v *value) Set(text string) error {
	if _, err := v.setting.kind.read(text); err != nil {
		return err
	}
	v.text = text
	return nil
}

// Choices returns the values of a flag that AddFlags has added and that takes one of some
// words; nil for any other.
func Choices(f *pflag.Flag) []string {
	if v, ok := f.Value.(*value); ok {
		return v.setting.kind.words
	}
	return nil
}
