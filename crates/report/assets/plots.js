// Pictures: a cross-hair with a read-out, and zoom by dragging, by Ctrl and the wheel, and by keys.
"use strict";
(() => {
  const MOST_LINES = 12; // of a read-out
  const NEAR = 25; // pixels between the pointer and what it means
  const SHARES = [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999];

  const make = (name, attributes, text = "") => {
    const element = document.createElementNS(document.querySelector("svg").namespaceURI, name);
    Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
    element.textContent = text;
    return element;
  };
  const settingOf = (group) => /(?:^| )s(\d+)(?: |$)/.exec(group.getAttribute("class") ?? "")?.[1];
  const nameOf = (setting) => document.querySelector(`.legend [data-setting="${setting}"]`)?.textContent.trim() ?? "";
  const rounded = (value, digits = 4) => String(Number(value.toPrecision(digits)));

  // An axis as the file has it: kind, ends, divisor to the shown unit, unit. Share 0 is its low end.
  const axisOf = (text) => {
    const [kind, low, high, divisor, ...unit] = text.split(" ");
    const bend = { linear: (it) => it, log: Math.log, logit: (it) => Math.log(it / (1 - it)) }[kind];
    const unbend = { linear: (it) => it, log: Math.exp, logit: (it) => 1 / (1 + Math.exp(-it)) }[kind];
    const [from, to] = [bend(Number(low)), bend(Number(high))];
    const share = (value) => (bend(value) - from) / (to - from);
    const shown = (at) => unbend(from + at * (to - from)) / Number(divisor);
    const name = unit.join(" ");
    return { kind, unit: name === "%" ? name : ` ${name}`, shown, shareOf: (value) => share(value * Number(divisor)) };
  };

  // Round values between two shares of an axis, each with its label.
  const ticks = (axis, from, to, most) => {
    const [low, high] = [axis.shown(from), axis.shown(to)];
    let values;
    if (axis.kind === "logit") {
      values = SHARES.map((share) => share * 100);
    } else if (axis.kind === "log" && high / low > 4) {
      const decades = Array.from({ length: 40 }, (_, index) => index - 20);
      values = decades.flatMap((decade) => [1, 2, 5].map((digit) => digit * 10 ** decade));
    } else {
      const rough = (high - low) / most;
      const power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].find((digit) => digit * power >= rough) * power;
      const first = Math.ceil(low / step);
      values = Array.from({ length: Math.max(0, Math.floor(high / step) - first + 1) }, (_, index) => (first + index) * step);
    }
    const digits = 3 + Math.max(0, Math.ceil(Math.log10(Math.abs(high) / (high - low))));
    return values.filter((it) => it >= low && it <= high).map((it) => ({ share: axis.shareOf(it), label: rounded(it, digits) }));
  };

  const interactive = (svg) => {
    const [left, top, right, bottom] = svg.dataset.plot.split(" ").map(Number);
    const [width, height] = [right - left, bottom - top];
    const x = axisOf(svg.dataset.x);
    const y = svg.dataset.y ? axisOf(svg.dataset.y) : undefined;
    const whole = svg.innerHTML;
    const figure = svg.closest("figure");
    const readout = figure.querySelector(".readout") ?? figure.appendChild(Object.assign(document.createElement("output"), { className: "readout", hidden: true }));
    const reset = figure.appendChild(Object.assign(document.createElement("button"), { className: "reset", type: "button", textContent: "Reset zoom", hidden: true }));
    let view = [0, 1, 0, 1]; // the visible shares: across from and to, up from and to
    let hair; // the cross-hair's pixels in the picture
    let drag; // where a drag began
    let dragged = false;

    const scales = () => [1 / (view[1] - view[0]), 1 / (view[3] - view[2])];
    const moved = (px, py) => {
      const [across, up] = scales();
      return [left + ((px - left) / width - view[0]) * across * width, bottom - ((bottom - py) / height - view[2]) * up * height];
    };
    const original = (px, py) => {
      const [across, up] = scales();
      return [left + ((px - left) / width / across + view[0]) * width, bottom - ((bottom - py) / height / up + view[2]) * height];
    };

    // Redraws the picture for the visible part: marks keep their size, lines their width.
    const draw = () => {
      svg.innerHTML = whole;
      reset.hidden = view.join() === "0,1,0,1";
      if (reset.hidden) return;
      const [across, up] = scales();
      const [tx, ty] = moved(0, 0);
      const inside = make("svg", { class: "marks", x: left, y: top, width, height, viewBox: `${left} ${top} ${width} ${height}` });
      svg.querySelectorAll(":scope > g, :scope > .frontier, :scope > .span").forEach((element) => inside.append(element));
      inside.querySelectorAll("path, polyline").forEach((element) => element.setAttribute("transform", `matrix(${across} 0 0 ${up} ${tx} ${ty})`));
      inside.querySelectorAll(".leader").forEach((element) => element.remove());
      inside.querySelectorAll("g").forEach((group) => {
        const dot = group.querySelector(".dot");
        const [px, py] = dot ? [Number(dot.getAttribute("cx")), Number(dot.getAttribute("cy"))] : [0, 0];
        const [mx, my] = moved(px, py);
        group.querySelectorAll("circle, text").forEach((element) => (dot ? element.setAttribute("transform", `translate(${mx - px} ${my - py})`) : element.remove()));
      });
      svg.append(inside);
      svg.querySelectorAll(y ? ".grid-line, .tick" : ".grid-line.x, .tick.x").forEach((element) => element.remove());
      ticks(x, view[0], view[1], width > 400 ? 6 : 3).forEach(({ share, label }) => {
        const [px] = moved(left + share * width, 0);
        svg.prepend(make("path", { class: "grid-line x", d: `M${px} ${top}V${bottom}` }));
        svg.append(make("text", { class: "tick x", x: px, y: bottom + 16, "text-anchor": "middle" }, label));
      });
      if (!y) return;
      ticks(y, view[2], view[3], 6).forEach(({ share, label }) => {
        const [, py] = moved(0, bottom - share * height);
        svg.prepend(make("path", { class: "grid-line y", d: `M${left} ${py}H${right}` }));
        svg.append(make("text", { class: "tick y", x: left - 7, y: py + 4, "text-anchor": "end" }, label + (y.kind === "logit" ? "%" : "")));
      });
    };

    const zoomTo = (next) => {
      const [x0, x1, y0, y1] = next.map((it) => Math.min(1, Math.max(0, it)));
      if (x1 - x0 < 1e-4 || y1 - y0 < 1e-4) return;
      view = y ? [x0, x1, y0, y1] : [x0, x1, 0, 1];
      draw();
    };
    const zoomBy = (factor, [px, py]) => {
      const around = (from, to, at) => [at - (at - from) * factor, at + (to - at) * factor];
      const [ox, oy] = original(px, py);
      zoomTo([...around(view[0], view[1], (ox - left) / width), ...around(view[2], view[3], (bottom - oy) / height)]);
    };

    // The points of every setting: of a curve, of a dot, or of dashes.
    const points = (group) => {
      const line = group.querySelector("polyline");
      if (line) return [...line.points].map((point) => [point.x, point.y]);
      const dot = group.querySelector(".dot");
      if (dot) return [[Number(dot.getAttribute("cx")), Number(dot.getAttribute("cy"))]];
      const dashes = group.querySelector(".trials")?.getAttribute("d") ?? "";
      return [...dashes.matchAll(/M([\d.-]+) ([\d.-]+)h([\d.-]+)/g)].map(([, px, py, length]) => [Number(px) + Number(length) / 2, Number(py)]);
    };
    const groups = () => [...svg.querySelectorAll("g")].filter((group) => settingOf(group) !== undefined);
    const nearest = ([px, py]) => {
      let best = { distance: NEAR };
      groups().forEach((group) => points(group).forEach(([ox, oy]) => {
        const [mx, my] = moved(ox, oy);
        const distance = Math.hypot(mx - px, my - py);
        if (distance < best.distance) best = { distance, setting: settingOf(group) };
      }));
      return best.setting;
    };
    // Where each curve has the height of the cross-hair.
    const crossings = (height) => groups().flatMap((group) => {
      const curve = points(group);
      const after = curve.findIndex(([, py]) => py <= height);
      if (after < 0 || curve.length < 2) return [];
      const [[ax, ay], [bx, by]] = [curve[Math.max(after - 1, 0)], curve[after]];
      const at = ay === by ? bx : ax + ((ay - height) / (ay - by)) * (bx - ax);
      return [{ setting: settingOf(group), at: (Math.min(Math.max(at, left), right) - left) / width }];
    });

    const lookUp = () => {
      const [ox, oy] = original(...hair);
      const across = `${rounded(x.shown((ox - left) / width))}${x.unit}`;
      const up = y ? `, ${rounded(y.shown((bottom - oy) / height))}${y.unit}` : "";
      const lines = svg.querySelector("polyline.line") ? crossings(oy).slice(0, MOST_LINES).map(({ setting, at }) => [setting, `${nameOf(setting)}: ${rounded(x.shown(at))}${x.unit}`]) : [];
      const near = nearest(hair);
      if (!lines.length && near !== undefined) lines.push([near, nameOf(near)]);
      const colour = (setting) => [...document.querySelector(`.legend [data-setting="${setting}"]`)?.classList ?? []].find((it) => /^k\d$/.test(it)) ?? "";
      readout.replaceChildren(across + up, ...lines.map(([setting, text]) => {
        const line = Object.assign(document.createElement("span"), { className: `key ${colour(setting)}` });
        line.append(Object.assign(document.createElement("span"), { className: "swatch" }), text);
        return line;
      }));
      readout.classList.toggle("at-left", hair[0] > left + width / 2);
      readout.hidden = false;
    };
    const point = (px, py) => {
      hair = [Math.min(Math.max(px, left), right), Math.min(Math.max(py, top), bottom)];
      svg.querySelector(".hair")?.remove();
      svg.append(make("path", { class: "hair", d: `M${hair[0]} ${top}V${bottom}M${left} ${hair[1]}H${right}` }));
      lookUp();
    };
    const leave = () => {
      hair = undefined;
      svg.querySelectorAll(".hair, .drag").forEach((element) => element.remove());
      readout.hidden = true;
    };
    const place = (event) => {
      const box = svg.getBoundingClientRect();
      const scale = svg.viewBox.baseVal.width / box.width;
      return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    };
    const isInside = ([px, py]) => px >= left && px <= right && py >= top && py <= bottom;
    const pin = (setting) => document.dispatchEvent(new CustomEvent("pin-setting", { detail: setting }));

    svg.setAttribute("tabindex", "0");
    svg.addEventListener("pointermove", (event) => {
      const at = place(event);
      if (drag) {
        const [[ax, ay], [bx, by]] = [drag, at];
        dragged ||= Math.hypot(bx - ax, by - ay) > 8;
        svg.querySelector(".drag")?.remove();
        const [boxTop, boxHeight] = y ? [Math.min(ay, by), Math.abs(by - ay)] : [top, height];
        if (dragged) svg.append(make("rect", { class: "drag", x: Math.min(ax, bx), y: boxTop, width: Math.abs(bx - ax), height: boxHeight }));
      }
      if (isInside(at)) point(...at); else if (!drag) leave();
    });
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("pointerdown", (event) => {
      dragged = false;
      if (event.pointerType === "touch" || event.button !== 0 || !isInside(place(event))) return;
      drag = place(event);
      svg.setPointerCapture(event.pointerId);
      event.preventDefault(); // no text is selected
      svg.focus({ preventScroll: true });
    });
    svg.addEventListener("pointerup", (event) => {
      const [from, to] = [drag, place(event)];
      drag = undefined;
      svg.querySelector(".drag")?.remove();
      if (!from || !dragged) return;
      const [a, b] = [original(...from), original(...to)];
      const span = (one, two, least) => (Math.abs(two - one) < least ? undefined : [Math.min(one, two), Math.max(one, two)]);
      const across = span((a[0] - left) / width, (b[0] - left) / width, 8 / width / scales()[0]);
      const up = span((bottom - a[1]) / height, (bottom - b[1]) / height, 8 / height / scales()[1]);
      zoomTo([...(across ?? view.slice(0, 2)), ...(up ?? view.slice(2))]);
    });
    svg.addEventListener("click", (event) => {
      event.stopPropagation();
      const group = event.target.closest("g");
      const setting = group ? settingOf(group) : nearest(place(event));
      if (!dragged && setting !== undefined) pin(setting);
    });
    svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
      event.preventDefault();
      zoomBy(event.deltaY < 0 ? 0.8 : 1.25, place(event));
    }, { passive: false });
    svg.addEventListener("keydown", (event) => {
      const step = event.shiftKey ? 0.1 : 0.02;
      const [px, py] = hair ?? [left + width / 2, top + height / 2];
      const steps = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }[event.key];
      if (steps) point(px + steps[0] * width, py + steps[1] * height);
      else if (event.key === "+" || event.key === "=") zoomBy(0.5, [px, py]);
      else if (event.key === "-") zoomBy(2, [px, py]);
      else if (event.key === "0") zoomTo([0, 1, 0, 1]);
      else if (event.key === "Enter" && nearest([px, py]) !== undefined) pin(nearest([px, py]));
      else return;
      event.preventDefault();
    });
    svg.addEventListener("blur", leave);
    reset.addEventListener("click", () => { zoomTo([0, 1, 0, 1]); svg.focus(); });
  };

  document.querySelectorAll("svg[data-plot]").forEach(interactive);
})();
