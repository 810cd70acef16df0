package api

// AppendPutRouter appends the answer to PUT router.
func AppendPutRouter(dst []byte, router string, r *PutRouterResult, totalMS float64) []byte {
	dst = appendRouter(dst, router)
	dst = appendNamedBool(dst, "created", r.Created)
	dst = appendRouterConfig(dst, &r.Config)
	return appendEnd(dst, &Performance{TotalMS: totalMS})
}

// AppendRouterState appends the answer to GET router.
func AppendRouterState(dst []byte, r *RouterState, totalMS float64) []byte {
	dst = appendRouter(dst, r.Router)
	dst = appendRouterConfig(dst, &r.Config)
	dst = appendNamed(dst, "forwarded_total", r.ForwardedTotal)
	return appendEnd(dst, &Performance{TotalMS: totalMS})
}

// AppendRouterList appends one page of the router list.
func AppendRouterList(dst []byte, l *RouterList, totalMS float64) []byte {
	dst = append(dst, `{"routers":[`...)
	for i := range l.Routers {
		r := &l.Routers[i]
		dst = appendRouter(appendComma(dst), r.Router)
		dst = appendEnds(dst, &r.Config)
		dst = appendGuarantee(dst, r.Config.Guarantee)
		dst = appendNamed(dst, "forwarded_total", r.ForwardedTotal)
		dst = append(dst, '}')
	}
	dst = append(dst, ']')
	if l.More {
		dst = append(dst, `,"next_cursor":"`...)
		dst = append(dst, EncodeCursor(l.Last)...)
		dst = append(dst, '"')
	}
	return appendEnd(dst, &Performance{TotalMS: totalMS})
}

// AppendDeleteRouter appends the answer to DELETE router.
func AppendDeleteRouter(dst []byte, router string, deleted bool, totalMS float64) []byte {
	dst = appendRouter(dst, router)
	dst = appendNamedBool(dst, "deleted", deleted)
	return appendEnd(dst, &Performance{TotalMS: totalMS})
}

func appendRouter(dst []byte, router string) []byte {
	dst = append(dst, `{"router":`...)
	return AppendString(dst, router)
}

func appendEnds(dst []byte, c *RouterConfig) []byte {
	dst = append(dst, `,"source":`...)
	dst = AppendString(dst, c.Source)
	dst = append(dst, `,"dest":`...)
	return AppendString(dst, c.Dest)
}

func appendGuarantee(dst []byte, g Guarantee) []byte {
	dst = append(dst, `,"guarantee":"`...)
	dst = append(dst, g.String()...)
	return append(dst, '"')
}

func appendRouterConfig(dst []byte, c *RouterConfig) []byte {
	dst = appendEnds(dst, c)
	dst = appendNamedBool(dst, "preserve_node", c.PreserveNode)
	dst = appendNamedBool(dst, "preserve_tag", c.PreserveTag)
	dst = append(dst, `,"filter":`...)
	dst = appendPredicate(dst, c.Filter)
	dst = appendNamedBool(dst, "allow_cycle", c.AllowCycle)
	return appendGuarantee(dst, c.Guarantee)
}

// appendPredicate appends the three-element form, or null for nil.
func appendPredicate(dst []byte, p *Predicate) []byte {
	if p == nil {
		return append(dst, "null"...)
	}
	if p.Glob {
		dst = append(dst, `["tag","Glob",`...)
		dst = AppendString(dst, p.Value+"*")
	} else {
		dst = append(dst, `["tag","Eq",`...)
		dst = AppendString(dst, p.Value)
	}
	return append(dst, ']')
}
