// Package typescript tests the TypeScript client as somebody who installs it: the package is
// packed, installed into an empty folder, and run by Node against the real server, which is
// killed while its programs publish, follow and work.
package typescript
