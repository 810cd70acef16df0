package s3_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirmq/weir/internal/replica"
)

func TestAStoreWithAnotherTimeSaysWhatHelps(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, "<Error><Code>RequestTimeTooSkewed</Code><Message>no</Message></Error>")
	}))
	t.Cleanup(s.Close)
	err := open(t, s.Listener.Addr().String(), "copy").Create(t.Context(), "log/1", []byte("entry"))
	if !errors.Is(err, replica.ErrRefused) || !strings.Contains(err.Error(), "set the clock of this machine") {
		t.Errorf("it says %v", err)
	}
}
