// Package deploy checks what puts weir on a machine: the files of the folder deploy, what a
// supervisor is told, and the server behind a proxy.
package deploy
