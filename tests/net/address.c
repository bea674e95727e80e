/* SPDX-License-Identifier: MIT */
/* Addresses: their texts, and sockets that listen. */
#include "config.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/checked.h"
#include "net/address.h"
#include "tests/net/pair.h"
#include "tests/support/unit-check.h"

Test(net_address, texts_are_addresses_or_refused)
{
	static const struct {
		const char *text;
		bool any_port;
		int err;	   /* 0: an address */
		const char *words; /* of the address, or of the error */
	} cases[] = {
		{"127.0.0.1:7000", false, 0, "127.0.0.1:7000"},
		{"10.0.0.1:65535", false, 0, "10.0.0.1:65535"},
		{"10.0.0.1:00080", false, 0, "10.0.0.1:80"},
		{"[::1]:7000", false, 0, "[::1]:7000"},
		{"[FD00:0::1]:7000", false, 0, "[fd00::1]:7000"},
		{"[::ffff:10.0.0.1]:1", false, 0, "10.0.0.1:1"},
		{"0.0.0.0:0", true, 0, "0.0.0.0:0"},
		{"[::]:0", true, 0, "[::]:0"},
		{"127.0.0.1:0", false, -EINVAL, "from 1 to 65535"},
		{"127.0.0.1:65536", true, -EINVAL, "from 1 to 65535"},
		{"127.0.0.1:99999", true, -EINVAL, "from 1 to 65535"},
		{"127.0.0.1:100000", true, -EINVAL, "no port"},
		{"127.0.0.1:-1", true, -EINVAL, "no port"},
		{"127.0.0.1:+1", true, -EINVAL, "no port"},
		{"127.0.0.1: 1", true, -EINVAL, "no port"},
		{"127.0.0.1:http", true, -EINVAL, "no port"},
		{"127.0.0.1:1x", true, -EINVAL, "no port"},
		{"127.0.0.1:", true, -EINVAL, "no port"},
		{"127.0.0.1", true, -EINVAL, "no port"},
		{"", true, -EINVAL, "no port"},
		{":7000", false, -EINVAL, "no host"},
		{"[]:7000", false, -EINVAL, "no host"},
		{"[::1]", false, -EINVAL, "no port"},
		{"[::1]7000", false, -EINVAL, "no port"},
		{"[::1", false, -EINVAL, "no port"},
		{"::1:7000", false, -EINVAL, "no host"},
		{"fd00::1:7000", false, -EINVAL, "no port"},
		{"[10.0.0.1]:7000", false, -EINVAL, "no address of IPv6"},
		{"[localhost]:7000", false, -EINVAL, "no address of IPv6"},
		{"a..b:7000", false, -EHOSTUNREACH, "\"a..b\""},
	};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(cases); i++) {
		struct hoist__address found[4];
		int n = hoist__address_find(cases[i].text, cases[i].any_port, found, 4);
		if (cases[i].err < 0) {
			cr_expect_eq(n, cases[i].err, "\"%s\": %d", cases[i].text, n);
			expect_text(cases[i].words);
			continue;
		}
		cr_assert_eq(n, 1, "\"%s\": %s", cases[i].text, hoist_error());
		cr_expect_str_eq(found[0].text, cases[i].words);
	}
}

Test(net_address, a_host_that_is_too_long_is_refused)
{
	char text[400];
	struct hoist__address found;
	memset(text, 'a', sizeof text);
	memcpy(text + sizeof text - 3, ":1", 3);
	REFUSED(hoist__address_find(text, false, &found, 1), -EINVAL, "too long");
}

Test(net_address, as_many_are_found_as_there_is_room_for)
{
	struct hoist__address found[2] = {{.text = "untouched"}, {.text = "untouched"}};
	if (hoist__address_find("localhost:7000", false, found, 1) == -EHOSTUNREACH)
		cr_skip_test("this machine does not know localhost");
	cr_expect(hoist__address_loopback(&found[0]));
	cr_expect_eq(hoist__address_port(&found[0]), 7000);
	cr_expect_str_eq(found[1].text, "untouched");
}

Test(net_address, loopback_is_what_no_other_machine_reaches)
{
	static const struct {
		const char *text;
		bool loopback;
	} cases[] = {
		{"127.0.0.1:1", true},
		{"127.255.255.255:1", true},
		{"[::1]:1", true},
		{"[::ffff:127.1.2.3]:1", true},
		{"128.0.0.1:1", false},
		{"126.255.255.255:1", false},
		{"0.0.0.0:1", false},
		{"[::]:1", false},
		{"[::2]:1", false},
		{"[::ffff:10.0.0.1]:1", false},
		{"[fe80::127:0:0:1]:1", false},
	};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(cases); i++) {
		struct hoist__address found;
		cr_assert_eq(hoist__address_find(cases[i].text, false, &found, 1), 1);
		cr_expect_eq(hoist__address_loopback(&found), cases[i].loopback, "%s",
			     cases[i].text);
	}
}

Test(net_address, this_machine_has_addresses_of_one_family)
{
	struct hoist__address own[8], one[2] = {{.text = "untouched"}, {.text = "untouched"}};
	int n = hoist__address_own(own, 8);
	cr_assert(n >= 1 && n <= 8, "%d: %s", n, hoist_error());
	for (int i = 0; i < n; i++) {
		int fd;
		cr_expect_eq(own[i].socket.ss_family, own[0].socket.ss_family);
		cr_expect_eq(hoist__address_port(&own[i]), 0);
		cr_expect(n == 1 || !hoist__address_loopback(&own[i]), "%s", own[i].text);
		OK(hoist__address_listen(&own[i], &fd, NULL));
		(void)close(fd);
	}
	cr_expect_eq(hoist__address_own(one, 1), 1);
	cr_expect_str_eq(one[0].text, own[0].text);
	cr_expect_str_eq(one[1].text, "untouched");
}

Test(net_address, a_port_can_be_set)
{
	static const char *const texts[][2] = {{"10.0.0.1:1", "10.0.0.1:65535"},
					       {"[fd00::1]:1", "[fd00::1]:65535"}};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(texts); i++) {
		struct hoist__address found;
		cr_assert_eq(hoist__address_find(texts[i][0], false, &found, 1), 1);
		cr_expect_eq(hoist__address_port(&found), 1);
		hoist__address_set_port(&found, 65535);
		cr_expect_eq(hoist__address_port(&found), 65535);
		cr_expect_str_eq(found.text, texts[i][1]);
	}
}

Test(net_address, an_address_with_a_zone_fits)
{
	struct sockaddr_in6 longest = {
		.sin6_family = AF_INET6, .sin6_port = htons(65535), .sin6_scope_id = UINT32_MAX};
	struct hoist__address made;
	cr_assert_eq(
		inet_pton(AF_INET6, "fe80:1234:1234:1234:1234:1234:1234:1234", &longest.sin6_addr),
		1);
	OK(hoist__address_make((struct sockaddr *)&longest, sizeof longest, &made));
	cr_expect_str_eq(made.text, "[fe80:1234:1234:1234:1234:1234:1234:1234%4294967295]:65535");
}

Test(net_address, other_kinds_of_addresses_are_refused)
{
	struct sockaddr_un path = {.sun_family = AF_UNIX};
	struct sockaddr_in cut = {.sin_family = AF_INET};
	struct hoist__address made = {.text = "untouched"};
	cr_expect_eq(hoist__address_make((struct sockaddr *)&path, sizeof path, &made),
		     -EAFNOSUPPORT);
	cr_expect_eq(hoist__address_make((struct sockaddr *)&cut, sizeof cut - 1, &made),
		     -EAFNOSUPPORT);
	cr_expect_eq(hoist__address_make((struct sockaddr *)&cut, 0, &made), -EAFNOSUPPORT);
	cr_expect_str_eq(made.text, "untouched");
}

/* An address that no other test listens at, so that nobody takes the port meanwhile. */
Test(net_address, a_port_that_is_taken_is_refused_with_a_remedy)
{
	char text[64];
	struct hoist__address any, at;
	int first = -1;
	int second = -1;
	(void)snprintf(text, sizeof text, "127.%u.%u.99:0", (unsigned)getpid() >> 8 & 255,
		       (unsigned)getpid() & 255);
	cr_assert_eq(hoist__address_find(text, true, &any, 1), 1);
	OK(hoist__address_listen(&any, &first, &at));
	cr_expect_neq(hoist__address_port(&at), 0);
	REFUSED(hoist__address_listen(&at, &second, NULL), -EADDRINUSE, "choose another port");
	expect_text(at.text);
	cr_expect_eq(second, -1);
	OK(close(first));
	OK(hoist__address_listen(&at, &second, NULL));
	OK(close(second));
}

/* [::] takes both families, and says which one came. */
Test(net_address, any_address_of_ipv6_takes_ipv4)
{
	static const char *const hosts[] = {"127.0.0.1:1", "[::1]:1"};
	struct hoist__secret secret = secret_of('s');
	struct hoist__address any;
	struct spot spot;
	cr_assert_eq(hoist__address_find("[::]:0", true, &any, 1), 1);
	if (hoist__address_listen(&any, &spot.listening, &spot.at) < 0)
		cr_skip_test("this machine has no IPv6");
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(hosts); i++) {
		struct hoist__address to;
		struct hoist__channel *c, *a;
		cr_assert_eq(hoist__address_find(hosts[i], false, &to, 1), 1);
		hoist__address_set_port(&to, hoist__address_port(&spot.at));
		OK(hoist__channel_connect(&to, &secret, &c));
		OK(hoist__channel_accept(spot_accept(&spot), &secret, &a));
		cr_expect_eq(strncmp(hoist__channel_peer(a)->text, hosts[i], strlen(hosts[i]) - 1),
			     0, "%s", hoist__channel_peer(a)->text);
		hoist__channel_close(c);
		hoist__channel_close(a);
	}
	spot_close(&spot);
}

/* 192.0.2.0/24 is for documents (RFC 5737). */
Test(net_address, another_machines_address_is_refused)
{
	struct hoist__address other;
	int fd;
	cr_assert_eq(hoist__address_find("192.0.2.1:7000", false, &other, 1), 1);
	REFUSED(hoist__address_listen(&other, &fd, NULL), -EADDRNOTAVAIL, "one of this machine's");
}

Test(net_address, accepting_does_not_wait_and_gives_sockets_that_do_not)
{
	struct spot spot = spot_open();
	struct hoist__secret secret = secret_of('s');
	struct hoist__channel *c;
	int fd = -1;
	cr_expect_eq(hoist__address_accept(spot.listening, &fd), -EAGAIN);
	cr_expect_eq(fd, -1);
	OK(hoist__channel_connect(&spot.at, &secret, &c));
	fd = spot_accept(&spot);
	cr_expect_neq(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
	cr_expect_neq(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
	cr_expect_neq(fcntl(spot.listening, F_GETFD) & FD_CLOEXEC, 0);
	cr_expect_neq(fcntl(hoist__channel_fd(c), F_GETFD) & FD_CLOEXEC, 0);
	OK(close(fd));
	hoist__channel_close(c);
	spot_close(&spot);
}
