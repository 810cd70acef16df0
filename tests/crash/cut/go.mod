module github.com/weirmq/weir/tests/crash/cut

go 1.26.0

require (
	github.com/hanwen/go-fuse/v2 v2.12.1
	github.com/weirmq/weir v0.0.0
)

require golang.org/x/sys v0.50.0 // indirect

replace github.com/weirmq/weir => ../../..
