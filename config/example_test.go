package config_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/weirmq/weir/config"
)

// A variable of the environment beats the file, whose errors name the key.
func ExampleLoad() {
	dir, err := os.MkdirTemp("", "config")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "weir.yaml")
	if err := os.WriteFile(file, []byte("lag_warn: 80\nqueue_max_depth: 20000\n"), 0o600); err != nil {
		panic(err)
	}
	variables := map[string]string{"QUEUE_MAX_DEPTH": "500", "WEIR_GUARD": "proportional"}
	settings, err := config.Load(config.Options{
		File:   file,
		Lookup: func(name string) (string, bool) { text, ok := variables[name]; return text, ok },
	})
	if err != nil {
		panic(err)
	}
	p := settings.Producer.WithDefaults()
	fmt.Println(p.Guard, p.LagWarn, p.MaxDepth, p.LagPoll)

	variables["QUEUE_MAX_DEPTH"] = "plenty"
	_, err = config.Load(config.Options{Lookup: func(name string) (string, bool) { text, ok := variables[name]; return text, ok }})
	fmt.Println(err)
	// Output:
	// proportional 80 500 100ms
	// environment variable QUEUE_MAX_DEPTH: "plenty" is not a whole number from 1 to 1099511627776
}

// A variable that is misspelt would be passed over in silence.
func ExampleUnknown() {
	os.Setenv("WEIR_WAIT_SL0", "5s")
	defer os.Unsetenv("WEIR_WAIT_SL0")
	for _, warning := range config.Unknown() {
		fmt.Println(warning)
	}
	// Output: unknown environment variable WEIR_WAIT_SL0, did you mean WEIR_WAIT_SLO?
}
