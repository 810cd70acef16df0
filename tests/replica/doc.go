// Package replica loses machines: servers that keep a copy are killed under load
// and their data directories removed, or they are suspended while a standby
// takes over. What was acknowledged has to be there then, or announced as lost.
package replica
