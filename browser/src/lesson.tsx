import { render } from "preact";
import { frame } from "./shell";
import "./style.css";
import { Widget } from "./widget";

frame(document.body.dataset.lesson);
document.querySelectorAll<HTMLElement>(".widget").forEach((element, i) => {
  // A widget that is far away loads when it is near.
  new IntersectionObserver(
    (seen, observer) => {
      if (!seen.some((one) => one.isIntersecting)) return;
      observer.disconnect();
      render(<Widget given={element.dataset} id={`widget-${i}`} />, element);
    },
    { rootMargin: "1500px" },
  ).observe(element);
});
