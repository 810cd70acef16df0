package weir_test

import (
	"testing"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend/backendtest"
)

func TestAPublishStoresItsMessage(t *testing.T) {
	f := backendtest.NewFake(backendtest.FakeOptions{})
	p, err := weir.NewProducer(weir.New(f), weir.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Publish(t.Context(), weir.Message{Data: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	if err := p.PublishBatch(t.Context(), []weir.Message{{Data: []byte("2")}, {Data: []byte("3")}}); err != nil {
		t.Fatal(err)
	}
	if err := p.TryPublish(t.Context(), weir.Message{Data: []byte("4")}); err != nil {
		t.Fatal(err)
	}
	if s, err := f.Stats(t.Context()); err != nil || s.XLen != 4 {
		t.Fatalf("stats %+v, %v: want 4 entries", s, err)
	}
}
