package main

import (
	"crypto/tls"
	"errors"
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
	if l, err = net.Listen("tcp", cfg.Addr); err != nil {
		return nil, "", notListening(err, "with --port (0 is any free one) or --host")
	}
	log.Info("listening", "address", l.Addr().String(), "tls", files != nil)
	if files == nil {
		return l, "http://" + l.Addr().String(), nil
	}
	return tls.NewListener(l, files.Config()), "https://" + l.Addr().String(), nil
}

// notListening adds to the error of an address on which a command cannot listen what mends
// it; another is how to choose another port.
func notListening(err error, another string) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return &remedied{err, "choose another " + another}
	case errors.Is(err, syscall.EACCES):
		return &remedied{err, "ports below 1024 may need rights that this user lacks; choose another " + another}
	}
	return &remedied{err, "use an address of this machine, such as 127.0.0.1"}
}

// afterScheme returns the host:port of a URL.
func afterScheme(url string) string {
	_, addr, _ := strings.Cut(url, "://")
	return addr
}
