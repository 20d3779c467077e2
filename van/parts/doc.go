// Package parts has what transports have in common: the deliveries of an endpoint and their credits, the attempts of
// Dial, the question to the Placer and the caller's value of an endpoint. It is for vans.
package parts
