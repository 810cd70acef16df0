// Package rounds attacks a weir server from the outside, over HTTP: rounds of
// load over all durability classes, each ended by a kill or a power cut, a
// restart, and a check of everything the server ever acknowledged or showed.
package rounds
