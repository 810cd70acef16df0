package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
)

// residentPeak is the most memory this process has had, in MiB.
func residentPeak() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, found := bytes.Cut(status, []byte("VmHWM:"))
	var kib int64
	if _, err := fmt.Sscan(string(rest), &kib); !found || err != nil {
		return 0, fmt.Errorf("no VmHWM in the status of this process")
	}
	return (kib + 1023) / 1024, nil
}

// redisMemory compares what the stream takes on the server with what the same
// payloads take as plain XADDs.
func (c config) redisMemory(ctx context.Context) (string, error) {
	client := c.client()
	defer client.Close()
	guarded, err := client.MemoryUsage(ctx, stream).Result()
	if err != nil {
		return "", err
	}
	if err := c.fill(ctx); err != nil {
		return "", err
	}
	plain, err := client.MemoryUsage(ctx, stream).Result()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("on the server %d MiB, as plain XADDs of the same payloads %d MiB", guarded>>20, plain>>20), nil
}
