package server

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirmq/weir/internal/api"
)

// putWebhook creates or replaces a webhook. Its queue has to be there: a name that is
// misspelt would wait for jobs for ever.
func (q *request) putWebhook() error {
	name := q.path.seg[2]
	cfg, err := api.DecodeWebhook(q.body, &q.warnings)
	if err != nil {
		return err
	}
	if err := q.strict(); err != nil {
		return err
	}
	if !q.key.allows(cfg.Topic) {
		return errBodyPrefix("topic", cfg.Topic)
	}
	if err := q.checkHook(); err != nil {
		return err
	}
	topic, err := q.eng.Topic(cfg.Topic, false)
	if err != nil {
		return err
	}
	if topic.Config.Type != api.TypeQueue {
		return api.Errorf(api.CodeNotAQueue, "topic %q is a log; a webhook delivers the jobs of a topic of type queue", cfg.Topic).With("topic", cfg.Topic)
	}
	if err := q.eng.InPlace(); err != nil {
		return err
	}
	state, created, secret, err := q.s.hooks.Put(name, cfg)
	if err != nil {
		return err
	}
	q.out = api.AppendPutWebhook(q.out[:0], &state, created, secret)
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return q.send(status)
}

// checkHook refuses a webhook in the path whose topic is outside the key's prefixes.
func (q *request) checkHook() error {
	state, err := q.s.hooks.Get(q.path.seg[2])
	if err == nil && !q.key.allows(state.Config.Topic) {
		return api.Errorf(api.CodeForbidden, "the webhook has a topic outside the prefixes of the key")
	}
	return nil
}

// getWebhook answers with what a webhook is and does, without its secret.
func (q *request) getWebhook() error {
	if err := q.checkHook(); err != nil {
		return err
	}
	state, err := q.s.hooks.Get(q.path.seg[2])
	if err != nil {
		return err
	}
	q.out = api.AppendWebhookState(q.out[:0], &state)
	return q.send(http.StatusOK)
}

// listWebhooks answers with one page of the webhooks that the key may see.
func (q *request) listWebhooks() error {
	p, err := q.page()
	if err != nil {
		return err
	}
	all, err := q.s.hooks.All()
	if err != nil {
		return err
	}
	var list api.WebhookList
	for i := range all {
		w := &all[i]
		if w.Webhook <= p.after || !strings.HasPrefix(w.Webhook, p.prefix) || !q.key.allows(w.Webhook) || !q.key.allows(w.Config.Topic) {
			continue
		}
		if len(list.Webhooks) == p.size {
			list.More, list.Last = true, list.Webhooks[p.size-1].Webhook
			break
		}
		list.Webhooks = append(list.Webhooks, *w)
	}
	q.out = api.AppendWebhookList(q.out[:0], &list)
	return q.send(http.StatusOK)
}

// deleteWebhook deletes a webhook; its queue stays as it is.
func (q *request) deleteWebhook() error {
	if err := q.checkHook(); err != nil {
		return err
	}
	if err := q.eng.InPlace(); err != nil {
		return err
	}
	name := q.path.seg[2]
	deleted, err := q.s.hooks.Delete(name)
	if err != nil {
		return err
	}
	q.out = api.AppendDeleteWebhook(q.out[:0], name, deleted)
	return q.send(http.StatusOK)
}

// collectHooks sends the numbers of webhooks.
func (p *scrape) collectHooks(put putFunc) {
	all, _ := p.s.hooks.All() // its error has been logged
	for i := range all {
		w := &all[i]
		if p.allowed != nil && !(p.allowed(w.Webhook) && p.allowed(w.Config.Topic)) {
			continue
		}
		put(prometheus.CounterValue, "weir_webhook_deliveries_total", float64(w.Deliveries), w.Webhook, "ok")
		put(prometheus.CounterValue, "weir_webhook_deliveries_total", float64(w.Failures), w.Webhook, "failed")
		put(prometheus.GaugeValue, "weir_webhook_in_flight", float64(w.InFlight), w.Webhook)
		put(prometheus.GaugeValue, "weir_webhook_failing", number(w.Failing), w.Webhook)
	}
}
