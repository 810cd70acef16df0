// Package s3 keeps a copy in a bucket of Amazon S3, or of a store that speaks like it
// and knows conditional puts.
package s3

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/slots"
)

// Store is the objects and files of a bucket below a prefix.
type Store struct {
	core   minio.Core
	bucket string
	prefix string // ends with a slash if it is not empty

	silence time.Duration // for which a call may stand still
}

// Open returns the store at s3://bucket/prefix?endpoint=URL&region=NAME. Credentials come from
// the environment (AWS_ACCESS_KEY_ID …), the shared file of AWS, or the machine's role.
func Open(u *url.URL) (*Store, error) {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("the query of the s3 URL: %w", err)
	}
	for key, values := range query {
		if key != "endpoint" && key != "region" || len(values) > 1 {
			return nil, fmt.Errorf("the s3 URL: query key %q is unknown or given twice; known: endpoint, region", key)
		}
	}
	if u.User != nil {
		return nil, errors.New("the s3 URL holds credentials; give them as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead")
	}
	if u.Host == "" || u.Opaque != "" {
		return nil, errors.New("the s3 URL names no bucket; expected s3://bucket/prefix")
	}
	if err := s3utils.CheckValidBucketName(u.Host); err != nil {
		return nil, fmt.Errorf("no bucket can be named %q: %w", u.Host, err)
	}
	host, secure, err := endpoint(query.Get("endpoint"))
	if err != nil {
		return nil, err
	}
	transport, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, fmt.Errorf("the s3 URL: %w", err)
	}
	s := &Store{bucket: u.Host, prefix: strings.Trim(u.Path, "/"), silence: silence}
	client, err := minio.New(host, &minio.Options{
		Transport: gateways{patience{transport, &s.silence}},
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		}),
		Secure:     secure,
		Region:     cmp.Or(query.Get("region"), os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
		MaxRetries: 3,
	})
	if err != nil {
		return nil, fmt.Errorf("the s3 URL: %w", err)
	}
	s.core = minio.Core{Client: client}
	if s.prefix != "" {
		s.prefix += "/"
	}
	return s, nil
}

// endpoint reads the address of a server that is not Amazon's.
func endpoint(text string) (host string, secure bool, err error) {
	if text == "" {
		return "s3.amazonaws.com", true, nil
	}
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.Scheme != "https" && u.Scheme != "http" {
		return "", false, fmt.Errorf("endpoint %q of the s3 URL cannot be read; expected https://host:port", text)
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "http" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", false, fmt.Errorf("endpoint %q of the s3 URL is not encrypted; use https:// (http:// is for this machine)", text)
	}
	return u.Host, u.Scheme == "https", nil
}

// Close does nothing.
func (s *Store) Close() error { return nil }

// told makes an error of the server one of those that callers know.
func (s *Store) told(what, name string, err error) error {
	if err == nil {
		return nil
	}
	answer := minio.ToErrorResponse(err)
	switch {
	case answer.Code == minio.RequestTimeTooSkewed:
		return fmt.Errorf("%w: %s %s in bucket %s: %s: set the clock of this machine, which the store finds too far from its own: %w", replica.ErrRefused, what, s.prefix+name, s.bucket, answer.Code, err)
	case answer.Code == minio.PreconditionFailed || answer.StatusCode == http.StatusPreconditionFailed:
		return slots.ErrExists
	case answer.Code == minio.NoSuchKey && what != "put":
		return fmt.Errorf("%w: %s", replica.ErrNotFound, name)
	case answer.StatusCode == http.StatusForbidden, answer.StatusCode == http.StatusUnauthorized, answer.StatusCode == http.StatusNotImplemented, answer.Code == minio.NoSuchBucket:
		return fmt.Errorf("%w: %s %s in bucket %s: %s: %w", replica.ErrRefused, what, s.prefix+name, s.bucket, answer.Code, err)
	}
	return fmt.Errorf("%s %s in bucket %s: %w", what, s.prefix+name, s.bucket, err)
}

// Create puts an object on the condition that there is none.
func (s *Store) Create(ctx context.Context, name string, data []byte) error {
	opt := putOptions(int64(len(data)))
	opt.DisableMultipart = true
	opt.SetMatchETagExcept("*")
	done, err := s.core.Client.PutObject(ctx, s.bucket, s.prefix+name, bytes.NewReader(data), int64(len(data)), opt)
	if minio.ToErrorResponse(err).StatusCode == http.StatusNotImplemented {
		return fmt.Errorf("%w: %w: it does not know puts with If-None-Match: *: keep the copy in a store that knows conditional writes: %w", replica.ErrRefused, slots.ErrNoConditionalPut, err)
	}
	return s.stored(name, done, err)
}

// stored makes an error of an answer to a put that no store has given: each names the object's ETag.
func (s *Store) stored(name string, done minio.UploadInfo, err error) error {
	if err == nil && done.ETag == "" {
		err = errors.New("the answer has no ETag, so it is not that of an S3 store, but of something in front of it")
	}
	return s.told("put", name, err)
}

// putOptions are those of an object of that size. The signature of a stream without
// bytes lacks a length.
func putOptions(size int64) minio.PutObjectOptions {
	return minio.PutObjectOptions{ContentType: "application/octet-stream", SendContentMd5: true, DisableContentSha256: size == 0}
}

// Put puts a file, in parts if it is large.
func (s *Store) Put(ctx context.Context, name string, size int64, content io.Reader) error {
	if size < 0 {
		return fmt.Errorf("replica: the size of %s is %d", name, size)
	}
	exact := &exactly{from: content, left: size}
	if size == 0 {
		if err := exact.end(); err != nil {
			return err
		}
	}
	done, err := s.core.Client.PutObject(ctx, s.bucket, s.prefix+name, exact, size, putOptions(size))
	return s.stored(name, done, err)
}

// exactly reads so many bytes, and fails if there are more or fewer: before the
// last of them is handed on.
type exactly struct {
	from io.Reader
	left int64
}

func (e *exactly) Read(p []byte) (int, error) {
	n, err := e.from.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	if e.left > 0 && errors.Is(err, io.EOF) {
		return n, fmt.Errorf("replica: a file lacks the last %d bytes that were announced", e.left)
	}
	if e.left == 0 && n > 0 {
		if more := e.end(); more != nil {
			return 0, more
		}
	}
	if e.left == 0 && n == 0 {
		err = io.EOF
	}
	return n, err
}

// end returns an error if there is another byte.
func (e *exactly) end() error {
	if n, err := io.ReadFull(e.from, make([]byte, 1)); n == 0 && errors.Is(err, io.EOF) {
		return nil
	} else if n == 0 {
		return err
	}
	return errors.New("replica: a file is longer than was announced")
}

// Get opens an object.
func (s *Store) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	ctx, end := context.WithCancelCause(ctx)
	late := time.AfterFunc(s.silence, func() { end(errSilent) }) // the client does not ask again
	in, _, _, err := s.core.GetObject(ctx, s.bucket, s.prefix+name, minio.GetObjectOptions{})
	late.Stop()
	if err != nil {
		err = s.told("get", name, orSilent(ctx, s.silence, err))
		end(nil)
		return nil, err
	}
	return &opened{in, end}, nil
}

// Delete removes an object.
func (s *Store) Delete(ctx context.Context, name string) error {
	err := s.told("delete", name, s.core.Client.RemoveObject(ctx, s.bucket, s.prefix+name, minio.RemoveObjectOptions{}))
	if errors.Is(err, replica.ErrNotFound) {
		return nil
	}
	return err
}

// List returns the files whose names begin with prefix.
func (s *Store) List(ctx context.Context, prefix string) ([]replica.File, error) {
	return s.ListAfter(ctx, prefix, "", 0)
}

// ListAfter returns the first most objects behind after, all if most is 0.
func (s *Store) ListAfter(ctx context.Context, prefix, after string, most int) (files []replica.File, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opt := minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true, MaxKeys: min(most, 1000)}
	if after != "" {
		opt.StartAfter = s.prefix + after
	}
	for o := range s.core.Client.ListObjectsIter(ctx, s.bucket, opt) {
		if o.Err != nil {
			return nil, s.told("list", prefix, o.Err)
		}
		name := strings.TrimPrefix(o.Key, s.prefix)
		if name != "" && name <= after {
			return nil, fmt.Errorf("%w: bucket %s lists %s behind %s: keep the copy in a bucket that lists in order, and from a name on (no directory bucket)", replica.ErrRefused, s.bucket, o.Key, s.prefix+after)
		}
		after = name
		files = append(files, replica.File{Name: name, Size: o.Size, Changed: o.LastModified})
		if len(files) == most {
			break
		}
	}
	return files, ctx.Err()
}
