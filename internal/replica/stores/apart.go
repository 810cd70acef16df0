package stores

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/kafka"
	"github.com/weirmq/weir/internal/replica/postgres"
)

// openApart opens a copy whose log is in a database or a topic and whose bases are elsewhere:
// base= says where. The errors do not quote the URL, which may hold a password.
func openApart(ctx context.Context, u *url.URL, opt Options) (replica.Log, replica.Files, error) {
	query := u.Query()
	base := query.Get("base")
	if base == "" {
		return nil, nil, fmt.Errorf("a copy in %[1]s:// keeps its bases elsewhere; write base=file:///path or base=s3://bucket/prefix into the URL, as in %[1]s://host/name?base=file:///mnt/bases", u.Scheme)
	}
	query.Del("base")
	bare := *u
	bare.RawQuery = query.Encode()
	files, err := OpenFiles(ctx, base)
	if err != nil {
		return nil, nil, fmt.Errorf("base: %w", err)
	}
	log, err := openLog(ctx, &bare, opt)
	if err != nil {
		return nil, nil, errors.Join(err, files.Close())
	}
	return log, files, nil
}

func openLog(ctx context.Context, u *url.URL, opt Options) (replica.Log, error) {
	if u.Scheme == "kafka" || u.Scheme == "kafkas" {
		return kafka.Open(ctx, u, kafka.Options{ReadOnly: opt.ReadOnly, Trouble: opt.Trouble})
	}
	return postgres.Open(ctx, u, postgres.Options{ReadOnly: opt.ReadOnly, Trouble: opt.Trouble})
}

// apart reports whether the scheme is that of a log without bases.
func apart(scheme string) bool {
	return slices.Contains([]string{"postgres", "postgresql", "kafka", "kafkas"}, scheme)
}
