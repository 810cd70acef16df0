package open_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/kafka"
	"github.com/weirmq/weir/backend/redis"
)

// Whoever changes a URL from Redis to Kafka reads on the page of Kafka what does not work there.
func TestThePageOfKafkaSaysWhatRedisCanDoAndKafkaCannot(t *testing.T) {
	page, err := os.ReadFile("../docs/KAFKA.md")
	if err != nil {
		t.Fatal(err)
	}
	_, moving, ok := strings.Cut(string(page), "\n## From Redis to Kafka\n")
	if moving, _, _ = strings.Cut(moving, "\n## "); !ok {
		t.Fatal("KAFKA.md has no section for who comes from Redis")
	}
	one, other := reflect.TypeFor[*redis.Backend](), reflect.TypeFor[*kafka.Backend]()
	for feature, words := range map[reflect.Type][]string{
		reflect.TypeFor[backend.Delayer]():     {"`Delay`", "`NotBefore`"},
		reflect.TypeFor[backend.Pauser]():      {"`Pause`", "`weir queue pause`"},
		reflect.TypeFor[backend.Windower]():    {"`shed_scope=stream`"},
		reflect.TypeFor[backend.Budgeter]():    {"`budget`"},
		reflect.TypeFor[backend.Sharer]():      {"`queue_max_depth`"},
		reflect.TypeFor[backend.Tallier]():     {"`guard=adaptive`"},
		reflect.TypeFor[backend.Trimmer]():     {"`trim`"},
		reflect.TypeFor[backend.PlaceKeeper](): {"`weir publish`"},
		reflect.TypeFor[backend.ShardKeeper](): {"`shards=N`"},
		reflect.TypeFor[backend.Shared]():      {"`weir dlq redrive`"},
		reflect.TypeFor[backend.DeadLetters](): {"`weir dlq`"},
		reflect.TypeFor[backend.Reader]():      {"`weir tail`"},
		reflect.TypeFor[backend.Remover]():     {"`weir topic rm`"},
		reflect.TypeFor[backend.Doctor]():      {"`weir doctor`"},
		reflect.TypeFor[backend.Observer]():    {"`weir dash`"},
	} {
		if !one.Implements(feature) || other.Implements(feature) {
			continue
		}
		for _, word := range words {
			if !strings.Contains(moving, word) {
				t.Errorf("a stream on Redis is a %s, one on Kafka is not, and who moves is not told of %s", feature, word)
			}
		}
	}
}
