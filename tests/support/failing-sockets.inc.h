/* SPDX-License-Identifier: MIT */
/* tests/support/failing-sockets.inc.h - the calls on sockets that net/ makes.  A program includes this
 * list once, where FAILS(result, name, parameters, arguments) defines a call that can be made to fail,
 * and has --wrap for each name. */
FAILS(int, socket, (int family, int type, int protocol), (family, type, protocol))
FAILS(int, bind, (int fd, const struct sockaddr *at, socklen_t bytes), (fd, at, bytes))
FAILS(int, listen, (int fd, int most), (fd, most))
FAILS(int, accept4, (int fd, struct sockaddr *peer, socklen_t *bytes, int flags),
      (fd, peer, bytes, flags))
FAILS(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t bytes),
      (fd, level, name, value, bytes))
FAILS(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *bytes),
      (fd, level, name, value, bytes))
FAILS(int, getsockname, (int fd, struct sockaddr *ret, socklen_t *bytes), (fd, ret, bytes))
FAILS(int, getpeername, (int fd, struct sockaddr *ret, socklen_t *bytes), (fd, ret, bytes))
FAILS(int, connect, (int fd, const struct sockaddr *at, socklen_t bytes), (fd, at, bytes))
FAILS(int, poll, (struct pollfd * fds, nfds_t n, int ms), (fds, n, ms))
FAILS(ssize_t, recv, (int fd, void *ret, size_t n, int flags), (fd, ret, n, flags))
FAILS(ssize_t, send, (int fd, const void *bytes, size_t n, int flags), (fd, bytes, n, flags))
