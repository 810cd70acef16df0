module github.com/weirmq/weir/tests/cloudevents

go 1.26.0

require (
	github.com/cloudevents/sdk-go/v2 v2.16.2
	github.com/weirmq/weir v0.0.0
)

require (
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.2 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.uber.org/zap v1.27.0 // indirect
)

replace github.com/weirmq/weir => ../..
