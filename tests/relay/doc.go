// Package relay tests weir serve --upstream as its users see it: crowds of listeners on
// relays, with the server behind them killed and restarted.
package relay
