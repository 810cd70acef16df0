// Package kafkatest starts real Kafka brokers for tests, alone or three as a cluster, of the
// version that scripts/kafka.sh installs, broker and controller in one process with a small
// heap. They listen on free loopback ports, have directories of their own and end with the test.
package kafkatest
