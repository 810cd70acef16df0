package settings

import (
	"net/url"
	"strconv"
)

// Kafka is what URLs of Kafka get that do not say it themselves.
type Kafka struct {
	User, Password string
	BufferMemory   int64 // bytes that may wait to be sent; 0: 32 MiB
	MaxInFlight    int   // requests in flight on one connection; 0: 5
}

// String hides the password.
func (k Kafka) String() string { return "Kafka settings of user " + strconv.Quote(k.User) }

// GoString hides the password.
func (k Kafka) GoString() string { return k.String() }

// URL returns rawURL with what it does not say. A URL that is not one of Kafka's stays as it
// is.
func (k Kafka) URL(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "kafka" && u.Scheme != "kafkas" {
		return rawURL
	}
	switch _, secret := u.User.Password(); {
	case u.User == nil && k.Password != "":
		u.User = url.UserPassword(k.User, k.Password)
	case u.User == nil && k.User != "":
		u.User = url.User(k.User)
	case !secret && k.Password != "" && (k.User == "" || k.User == u.User.Username()):
		u.User = url.UserPassword(u.User.Username(), k.Password)
	}
	query := u.Query()
	for key, n := range map[string]int64{"buffer_memory": k.BufferMemory, "max_in_flight": int64(k.MaxInFlight)} {
		if n != 0 && !query.Has(key) {
			query.Set(key, strconv.FormatInt(n, 10))
			u.RawQuery = query.Encode()
		}
	}
	return u.String()
}
