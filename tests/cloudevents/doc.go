// Package cloudevents sends events to a real server with the SDKs of the CloudEvents
// specification for Go, Python and JavaScript, in binary and in structured mode, and
// has them read what comes back: it has to be the same event. scripts/cloudevents.sh
// installs the latter two.
package cloudevents
