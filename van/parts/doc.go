// Package parts has what vans have in common, and is for them alone:
//
//   - the deliveries of an endpoint, and their credits;
//   - the attempts of Dial;
//   - the question to the Placer;
//   - the caller's value of an endpoint;
//   - the defaults and the bounds of options.
package parts
