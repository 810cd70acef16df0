package admission

import "time"

// drain measures how quickly a queue is worked off. What is finished tells that only
// while messages wait; otherwise it tells how many there were.
type drain struct {
	loaded meter // messages and seconds, under load
	recent meter // messages and seconds, under load or not
	always meter // messages, and seconds of all workers together
	peak   float64
	still  bool // nothing was finished in the last interval
	passed bool // the last interval was not counted; the next one is, lest slow workers never were
}

// meter is a quotient of two sums that forget.
type meter struct{ messages, seconds float64 }

func (m *meter) add(keep, messages, seconds float64) {
	m.messages = m.messages*keep + messages
	m.seconds = m.seconds*keep + seconds
}

// drainMessages is how many finished messages the measurement looks back at: their
// number is then known to about 1 in √50.
const drainMessages = 50

// measure looks back further by the factor far than it usually does.
func (d *drain) measure(from, to *Reading, slo time.Duration, far float64) {
	dt := to.At.Sub(from.At).Seconds()
	n := float64(max(0, to.Finished-from.Finished))
	d.still = n == 0
	if !d.passed && dt > standstill*slo.Seconds() && n <= float64(from.Working) {
		d.passed = true
		return // nobody looked, and no worker need have taken anything: what they can do is as it was
	}
	d.passed = false
	working := float64(from.busy()+to.busy()) / 2
	d.always.add(decay(dt, slo.Seconds()*2), n, working*dt)
	d.peak = max(d.peak*decay(dt, slo.Seconds()*20), working)

	back := slo.Seconds()
	rate, known := d.rate(slo)
	if rate > 0 {
		back = min(back, drainMessages/rate)
	}
	keep := decay(dt, far*max(back, 0.02))
	d.recent.add(keep, n, dt)
	switch {
	case loaded(from, to, n/dt, slo):
		d.loaded.add(keep, n, dt)
	case known && d.recent.messages > faster*rate*d.recent.seconds:
		d.loaded = d.recent // the workers can do at least that
	}
}

// busy is how many messages workers have in hand.
func (r *Reading) busy() int64 { return max(r.Working-r.Resting, 0) }

// standstill is how many times slo two readings are apart at least that may have a pause, or
// a night without workers, between them: it would count for many times slo.
const standstill = 4

// faster is how much more than the known rate must be finished without load to be
// believed: more than chance brings about.
const faster = 1.5

// loaded reports whether so much waited all the time that the workers had no break.
func loaded(from, to *Reading, rate float64, slo time.Duration) bool {
	least := float64(min(from.Waiting, to.Waiting))
	return least >= 1 && least >= rate*slo.Seconds()/64
}

// rate returns the messages per second. It is not known until some messages have been
// finished under load, or few of them for too long.
func (d *drain) rate(slo time.Duration) (rate float64, known bool) {
	m := &d.loaded
	if m.messages < 8 && m.seconds < slo.Seconds()/4 || m.seconds == 0 {
		return 0, false
	}
	return m.messages / m.seconds, true
}

// guess is what as many workers as were ever seen at work would do: all that is known
// of a queue that was never under load. It is 0 if nothing was finished yet.
func (d *drain) guess() float64 {
	if d.always.seconds == 0 {
		return 0
	}
	return max(d.peak, 1) * d.always.messages / d.always.seconds
}

// service is how long a worker has a message, by Little's law.
func (d *drain) service() time.Duration {
	if d.always.messages == 0 {
		return 0
	}
	return seconds(d.always.seconds / d.always.messages)
}
