// Package browser tests the dashboard as people see it: in Chromium, against real servers
// with real workers, with the rules of axe for those who read it by other means.
package browser
