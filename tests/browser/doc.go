// Package browser tests the dashboard as people see it: in Chromium, against real servers
// with real workers, with the rules of axe for those who read it by other means. It also runs
// the example of a page of another origin over kills of its server.
package browser
