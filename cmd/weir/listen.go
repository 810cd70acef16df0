package main

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/weirmq/weir/internal/certs"
	"github.com/weirmq/weir/internal/server"
)

// listen opens the address of a server, with TLS if it has a certificate, and returns its
// URL.
func listen(cfg *server.Config, opt *server.Options) (l net.Listener, url string, err error) {
	log := opt.Logger
	var files *certs.Server
	if cfg.TLS != (certs.Files{}) {
		files, err = certs.NewServer(cfg.TLS, func(ends time.Time, err error) {
			if err != nil {
				log.Error(err.Error())
				return
			}
			tellCertificate(log, "the certificate was read", ends)
		})
		if err != nil {
			return nil, "", &usageError{err}
		}
		if ends := files.Expires(); !time.Now().Before(ends) {
			tellCertificate(log, "the server begins with this certificate", ends)
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

// tellCertificate logs what has been done with a certificate, as a warning if no client takes it.
func tellCertificate(log *slog.Logger, done string, ends time.Time) {
	if !time.Now().Before(ends) {
		log.Warn(done+", but it has ended: clients refuse it", "ended", ends)
		return
	}
	log.Info(done, "ends", ends)
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
