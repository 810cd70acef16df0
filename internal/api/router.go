package api

// Guarantee says what a router promises about its copies.
type Guarantee uint8

// The two guarantees of a router.
const (
	AtLeastOnce Guarantee = iota
	ExactlyOnce
)

var guarantees = [...]string{AtLeastOnce: "at_least_once", ExactlyOnce: "exactly_once"}

// String returns the guarantee as it stands in JSON.
func (g Guarantee) String() string { return guarantees[g] }

// MaxHops is how many times a record is copied from router to router before a loop
// stops.
const MaxHops = 8

// RouterConfig is the configuration of a router, every field resolved.
type RouterConfig struct {
	Source       string
	Dest         string
	PreserveNode bool
	PreserveTag  bool
	AllowCycle   bool
	Guarantee    Guarantee
	Filter       *Predicate // nil: every record passes
	// CreateDest allows a PUT to create the destination; it is not kept.
	CreateDest bool
}

// PutRouterResult is the answer to PUT router.
type PutRouterResult struct {
	Created bool
	Config  RouterConfig
}

// RouterState is the answer to GET router, and one line of the router list.
type RouterState struct {
	Router         string
	Config         RouterConfig
	ForwardedTotal uint64 // copies made since it was created
}

// RouterList is one page of the router list.
type RouterList struct {
	Routers []RouterState
	More    bool   // more names follow Last
	Last    string // the last name looked at
}

// CheckRouter checks the names of a router to be created or updated.
func CheckRouter(name string, c *RouterConfig) error {
	switch {
	case !ValidRouterName(name):
		return Errorf(CodeInvalidRequest, "%.300q is not a router name, which has %s", name, routerNameRule)
	case c.Source == c.Dest:
		return Errorf(CodeInvalidRequest, "fields \"source\" and \"dest\" name the same topic; a router needs two").With("topic", c.Source[:min(len(c.Source), 256)])
	}
	for _, f := range [...]struct{ field, name string }{{"source", c.Source}, {"dest", c.Dest}} {
		if !ValidTopicName(f.name) {
			return Errorf(CodeInvalidRequest, "field %q is not a topic name, which has %s", f.field, topicNameRule).With(f.field, f.name[:min(len(f.name), 256)])
		}
	}
	return nil
}

// RouterNotFound is the answer for an absent router; its advice depends on whether a
// router can have that name.
func RouterNotFound(router string) *Error {
	if !ValidRouterName(router) {
		return Errorf(CodeRouterNotFound, "no router can be named %.300q; a router name has %s", router, routerNameRule).With("router", router)
	}
	return Errorf(CodeRouterNotFound, "router %q does not exist; create it with PUT", router).With("router", router)
}
