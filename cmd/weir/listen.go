package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/weirmq/weir/internal/certs"
	"github.com/weirmq/weir/internal/server"
)

// listen opens the address of a server, with TLS if it has a certificate, and returns its
// URL.
func listen(cfg *server.Config, opt *server.Options) (l net.Listener, url string, err error) {
	log := opt.Logger
	var files *certs.Server
	if cfg.TLS != (certs.Files{}) {
		files, err = certs.NewServer(cfg.TLS, func(err error) { log.Error(err.Error()) })
		if err != nil {
			return nil, "", &usageError{err}
		}
		opt.CertificateEnds = files.Expires
	}
	l, err = net.Listen("tcp", cfg.Addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, "", fmt.Errorf("%w; choose another with --port (0 is any free one) or --host", err)
	case err != nil:
		return nil, "", err
	}
	log.Info("listening", "address", l.Addr().String(), "tls", files != nil)
	if files == nil {
		return l, "http://" + l.Addr().String(), nil
	}
	return tls.NewListener(l, files.Config()), "https://" + l.Addr().String(), nil
}

// afterScheme returns the host:port of a URL.
func afterScheme(url string) string {
	_, addr, _ := strings.Cut(url, "://")
	return addr
}
